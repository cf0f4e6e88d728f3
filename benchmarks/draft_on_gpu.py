"""Drafting with a small model on a GPU: the part of ``gpu_check.py`` about ``proposer: draft``.

Weights are random, so all figures are *synthetic*: they say what drafting and verifying cost. Acceptance is
imposed: the draft model really runs, then its tokens are replaced by those of an oracle that errs at a rate.
That the drafting loop waits for nothing, and replays as a graph, is tested in tests/device.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from gpu_timing import timed, warm_and_measure
from paired import median_ratio
from transformers import LlamaConfig, LlamaForCausalLM

from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.embedded.forward import ForwardPass, prepare_model
from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers import DraftContext, Outcome, Proposer, Tokens
from foredraft.proposers.base import ReleaseReason
from foredraft.proposers.draft_model import DraftModelProposer
from foredraft.proposers.drafting import DraftingRows, draft_tokens
from foredraft.scheduler.speculation.contract import FixedDraftLength
from foredraft.verifier import Draft

MAX_LEN = 4096
CAPACITY = 512
CONTEXT = 256
NUM_DRAFT_TOKENS = 5
RATES = (0.6, 0.8)
FREE_BYTES = 4e9
"""Left free beside the weights: caches, activations, and the layer that is being taken over."""

LLAMA_7B = {
    "vocab_size": 32_000,
    "hidden_size": 4096,
    "intermediate_size": 11_008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
}
DRAFT_500M = {
    "vocab_size": 32_000,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
}


@dataclass(frozen=True)
class Pair:
    """A target and its draft."""

    target: ForwardPass
    draft: ForwardPass
    vocab_size: int


def measure_drafting(device: torch.device) -> dict[str, Any]:
    """Cost of K drafting steps against a target step, and the speedup at imposed acceptance; batch 1."""
    layers = layers_that_fit(LLAMA_7B, torch.cuda.mem_get_info(device)[0])
    target = random_llama(LLAMA_7B | {"num_hidden_layers": layers}, device)
    pair = Pair(target, random_llama(DRAFT_500M, device), LLAMA_7B["vocab_size"])
    return {
        "target_layers": layers,
        "of_layers": LLAMA_7B["num_hidden_layers"],
        "num_draft_tokens": NUM_DRAFT_TOKENS,
        "drafting_ratio": drafting_ratio(pair),
        "speedup": imposed_speedup(pair),
    }


def layers_that_fit(shape: dict[str, int], free_bytes: float) -> int:
    """As many layers of a Llama shape as ``free_bytes`` holds in bfloat16, up to all of them."""
    hidden, num_layers = shape["hidden_size"], shape["num_hidden_layers"]
    kv_share = shape["num_key_value_heads"] / shape["num_attention_heads"]
    layer_weights = hidden**2 * (2 + 2 * kv_share) + 3 * hidden * shape["intermediate_size"]
    fixed_weights = 2 * shape["vocab_size"] * hidden
    room = (free_bytes - FREE_BYTES) / 2 - fixed_weights
    return max(1, min(num_layers, int(room / layer_weights)))


def random_llama(shape: dict[str, int], device: torch.device) -> ForwardPass:
    config = LlamaConfig(**shape, max_position_embeddings=MAX_LEN, dtype=torch.bfloat16)
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)  # made in float32, a 7B model would need twice the memory
    try:
        with device:
            model = LlamaForCausalLM(config).eval().requires_grad_(False)
    finally:
        torch.set_default_dtype(usual)
    return prepare_model(model)


def decoder_of(model: ForwardPass, vocab_size: int) -> SlotDecoder:
    return SlotDecoder(model, 1, CAPACITY, MAX_LEN, vocab_size)


def drafting_ratio(pair: Pair) -> dict[str, float]:
    """Drafting K tokens over one target pass over a token, each with the cache rolled back."""
    target, draft = decoder_of(pair.target, pair.vocab_size), decoder_of(pair.draft, pair.vocab_size)
    prompt = torch.arange(CONTEXT, device=target.device)
    for decoder in (target, draft):
        decoder.forward(Tokens(prompt, [0], [0], [CONTEXT]))
    newest = Tokens(prompt[:1], [0], [CONTEXT], [1])

    def target_step() -> None:
        target.truncate(0, CONTEXT)
        target.head(target.forward(newest)).argmax(-1).tolist()

    def drafting() -> None:
        draft.truncate(0, CONTEXT)
        draft_tokens(draft, None, DraftingRows(newest, None, [NUM_DRAFT_TOKENS], None)).token_ids.tolist()

    seconds = warm_and_measure({"target step": timed(target_step), "drafting": timed(drafting)})
    return median_ratio(seconds["drafting"], seconds["target step"])


class ErringOracle(Proposer):
    """Drafts the known continuation; each token is wrong with probability 1 - ``rate``."""

    def __init__(self, run: Sequence[int], rate: float) -> None:
        self._run, self._rate, self._random = list(run), rate, random.Random(0)

    def propose(self, context: DraftContext) -> Draft:
        rows = []
        for committed, limit in zip(context.token_ids, context.max_draft_tokens, strict=True):
            truth = self._run[len(committed) : len(committed) + limit]
            rows.append([token if self._random.random() < self._rate else token ^ 1 for token in truth])
        return Draft.from_lists(rows, context.sampling.temperature.device)

    def release(self, request_id: str, reason: ReleaseReason) -> None:
        pass


class ImposedAcceptance(Proposer):
    """Lets a draft model do its work, and hands over an oracle's tokens in place of its own."""

    def __init__(self, model: DraftModelProposer, oracle: ErringOracle) -> None:
        self._model, self._oracle = model, oracle

    def propose(self, context: DraftContext) -> Draft:
        self._model.propose(context)
        return self._oracle.propose(context)

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        self._model.observe(outcomes)

    def release(self, request_id: str, reason: ReleaseReason) -> None:
        self._model.release(request_id, reason)


def imposed_speedup(pair: Pair, max_tokens: int = 48) -> dict[str, dict[str, float]]:
    """Tokens/s against plain decoding at imposed acceptance, batch 1.

    In bfloat16 a wider pass may choose another token than the recorded run did; from there on the oracle is
    wrong, so the speedup is a lower bound.
    """
    params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
    prompt = list(range(5, 69))
    plain = EmbeddedEngine(decoder_of(pair.target, pair.vocab_size), None, FixedDraftLength(0))
    run = prompt + plain.generate([prompt], params)[0].outputs[0].token_ids
    sides = {"none": timed(lambda: plain.generate([prompt], params), repeats=1)}
    for rate in RATES:
        model = DraftModelProposer(decoder_of(pair.draft, pair.vocab_size))
        engine = EmbeddedEngine(
            decoder_of(pair.target, pair.vocab_size),
            ImposedAcceptance(model, ErringOracle(run, rate)),
            FixedDraftLength(NUM_DRAFT_TOKENS),
        )
        sides[str(rate)] = timed(lambda engine=engine: engine.generate([prompt], params), repeats=1)
    seconds = warm_and_measure(sides)
    return {str(rate): median_ratio(seconds["none"], seconds[str(rate)]) for rate in RATES}
