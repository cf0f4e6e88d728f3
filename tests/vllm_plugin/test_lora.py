"""Two adapters and the base model in one batch, with drafts: each as in a stock vLLM (F113)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from toys import ScriptedProposer, oracle_of, random_prompts
from vllm_toys import close, make_llm, runner_of

pytestmark = pytest.mark.vllm

PROMPTS = random_prompts(6, seed=8, longest=30)
OPTIONS: dict[str, Any] = {"enable_lora": True, "max_loras": 2, "max_lora_rank": 8}


def adapter(folder: Path, seed: int) -> str:
    """An adapter of the attention of both layers, in peft's layout."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for layer in range(2):
        for name in ("q_proj", "v_proj"):
            place = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            weights[f"{place}.lora_A.weight"] = torch.randn(8, 64, generator=generator)
            weights[f"{place}.lora_B.weight"] = torch.randn(64, 8, generator=generator)
    folder.mkdir()
    save_file(weights, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 8, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return str(folder)


def run(llm: Any, adapters: Sequence[Any]) -> list[list[int]]:
    from vllm import SamplingParams

    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, detokenize=False)
    prompts = [{"prompt_token_ids": list(prompt)} for prompt in PROMPTS]
    outputs = llm.generate(prompts, params, lora_request=list(adapters), use_tqdm=False)
    return [list(output.outputs[0].token_ids) for output in outputs]


def test_each_request_drafts_with_its_own_adapter(
    toy: Path, tmp_path: Path, open_llm: Callable[..., Any]
) -> None:
    from vllm.lora.request import LoRARequest

    chosen = [LoRARequest(f"lora{one}", one, adapter(tmp_path / f"lora{one}", one)) for one in (1, 2)]
    adapters = [None, *chosen, None, *chosen]
    plain = make_llm(toy, **OPTIONS)
    try:
        expected = run(plain, adapters)
        assert expected != run(plain, [None] * 6), "the adapters change what is written"
    finally:
        close(plain)
    llm = open_llm({"num_draft_tokens": 3}, **OPTIONS)
    drafter = runner_of(llm).drafter
    runs = [[*prompt, *output] for prompt, output in zip(PROMPTS, expected, strict=True)]
    for num_right in (99, 1, 0):
        drafter.proposer = ScriptedProposer(oracle_of(runs), num_right=num_right)
        assert run(llm, adapters) == expected
    assert drafter.metrics.num_accepted_tokens > 50
