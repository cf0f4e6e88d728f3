"""Tests and benchmarks on a GPU, from a bare checkout, in less than 5 minutes.

Needs torch, transformers, numpy, pydantic, pyyaml, rich and pytest; nothing is installed, nothing downloaded.
Models are random: a Llama of about 1.2 B parameters, and for drafting a 7B shape (as many of its layers as
fit) with a 0.5B shape. So figures marked *synthetic* say what a pass costs, not how often a draft is right:
acceptance is imposed by an oracle that errs at a given rate.

    python benchmarks/gpu_check.py

Prints a table, and one line of JSON last. Exit code 1 if a test fails, 2 without a GPU.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import namespace_path  # noqa: F401 - makes foredraft importable
import torch
from draft_on_gpu import ErringOracle, measure_drafting
from gpu_timing import BLOCKS, timed, warm_and_measure
from paired import median_ratio, print_json, shown
from transformers import LlamaConfig, LlamaForCausalLM

from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.embedded.forward import ForwardPass, prepare_model
from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers import Tokens
from foredraft.scheduler.speculation.contract import FixedDraftLength
from foredraft.verifier import Draft, SamplingBatch, verify

ROOT = Path(__file__).resolve().parent.parent
NUM_DRAFT_TOKENS = 5


def main() -> None:
    if not torch.cuda.is_available():
        print("gpu_check: no GPU that this PyTorch can use", file=sys.stderr)
        sys.exit(2)
    failed = run_tests()
    device = torch.device("cuda")
    model = prepare_model(random_model(device))
    results: dict[str, Any] = {
        "verifier": verifier_cost(device),
        "pass": pass_cost(model),
        "speedup": imposed_speedup(model),
    }
    del model
    results["drafting"] = measure_drafting(device)
    print(torch.cuda.get_device_name())
    for name, ratio in results["verifier"].items():
        print(f"verify {name} / softmax: {shown(ratio)}")
    for width, ratio in results["pass"].items():
        print(f"pass over {width} tokens / 1 token (synthetic 1.2 B, bfloat16): {shown(ratio)}")
    for rate, ratio in results["speedup"].items():
        print(f"speedup at imposed acceptance {rate} (synthetic, K = {NUM_DRAFT_TOKENS}): {shown(ratio)}")
    print_drafting(results["drafting"])
    print_json("gpu_check", {"blocks": BLOCKS}, results)
    sys.exit(failed)


def print_drafting(drafting: dict[str, Any]) -> None:
    pair = f"7B shape, {drafting['target_layers']} of {drafting['of_layers']} layers, with 0.5B shape"
    label = f"synthetic {pair}, bfloat16, K = {drafting['num_draft_tokens']}, batch 1"
    print(f"K drafting steps / target step ({label}): {shown(drafting['drafting_ratio'])}")
    for rate, ratio in drafting["speedup"].items():
        print(f"draft, speedup at imposed acceptance {rate} ({label}): {shown(ratio)}")


def run_tests() -> bool:
    """The device-independent tests on CUDA; whether any failed."""
    environment = os.environ | {"FOREDRAFT_TEST_DEVICE": "cuda", "PYTHONPATH": str(ROOT / "benchmarks")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "namespace_path", "tests/device"]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode != 0


def random_model(device: torch.device) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=128_256,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
    )
    with device:
        return LlamaForCausalLM(config).to(torch.bfloat16).eval().requires_grad_(False)


def verifier_cost(device: torch.device) -> dict[str, dict[str, float]]:
    """Verifying point-mass drafts against one softmax over the same logits; B = 64, K = 5, V = 128 256."""
    num_requests, vocab_size = 64, 128_256
    logits = torch.randn(num_requests * (NUM_DRAFT_TOKENS + 1), vocab_size, device=device) * 3
    drafted = logits.view(num_requests, NUM_DRAFT_TOKENS + 1, vocab_size)[:, :-1].argmax(-1)
    draft = Draft(drafted, torch.full((num_requests,), NUM_DRAFT_TOKENS, device=device))

    def sampling(temperature: float, top_k: int = 0, top_p: float = 1.0) -> SamplingBatch:
        return SamplingBatch(
            temperature=torch.full((num_requests,), temperature, device=device),
            request_keys=torch.arange(num_requests, device=device),
            block_starts=torch.full((num_requests,), 100, device=device),
            top_k=torch.full((num_requests,), top_k, device=device) if top_k else None,
            top_p=torch.full((num_requests,), top_p, device=device) if top_p < 1 else None,
        )

    cases = {
        "greedy": sampling(0.0),
        "temperature": sampling(1.0),
        "top-k 50": sampling(1.0, top_k=50),
        "top-p 0.95": sampling(1.0, top_p=0.95),
    }
    sides = {name: timed(lambda batch=batch: verify(logits, draft, batch)) for name, batch in cases.items()}
    sides["softmax"] = timed(lambda: torch.softmax(logits, dim=-1))
    seconds = warm_and_measure(sides)
    return {name: median_ratio(seconds[name], seconds["softmax"]) for name in cases}


def pass_cost(model: ForwardPass) -> dict[str, dict[str, float]]:
    decoder = SlotDecoder(model, 1, 2048, 4096, 128_256)
    decoder.forward(tokens(decoder, 512, 0))

    def one_pass(width: int) -> None:
        decoder.head(decoder.forward(tokens(decoder, width, 512))).argmax(-1).tolist()
        decoder.truncate(0, 512)

    sides = {str(width): timed(lambda width=width: one_pass(width)) for width in (1, 2, 6, 9)}
    seconds = warm_and_measure(sides)
    return {width: median_ratio(seconds[width], seconds["1"]) for width in sides}


def tokens(decoder: SlotDecoder, count: int, start: int) -> Tokens:
    return Tokens(torch.arange(count, device=decoder.device), [0], [start], [count])


def imposed_speedup(model: ForwardPass) -> dict[str, dict[str, float]]:
    """Tokens/s with an oracle that errs at a given rate against plain decoding, batch 1.

    In bfloat16 a wider pass may choose another token than the recorded run did; from there on the oracle is
    wrong, so the speedup is a lower bound.
    """
    params = SamplingParams(temperature=0, max_tokens=48, ignore_eos=True)
    prompt = list(range(5, 69))
    plain = EmbeddedEngine(SlotDecoder(model, 1, 512, 4096, 128_256), None, FixedDraftLength(0))
    run = prompt + plain.generate([prompt], params)[0].outputs[0].token_ids
    sides = {"none": timed(lambda: plain.generate([prompt], params), repeats=1)}
    for rate in (0.6, 0.8):
        engine = EmbeddedEngine(
            SlotDecoder(model, 1, 512, 4096, 128_256),
            ErringOracle(run, rate),
            FixedDraftLength(NUM_DRAFT_TOKENS),
        )
        sides[str(rate)] = timed(lambda engine=engine: engine.generate([prompt], params), repeats=1)
    seconds = warm_and_measure(sides)
    return {rate: median_ratio(seconds["none"], seconds[rate]) for rate in ("0.6", "0.8")}


if __name__ == "__main__":
    main()
