"""What drafting with a model costs beside its passes: cache bytes per token, states, steps without drafts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaForCausalLM
from vllm_drafts import NUM_LAYERS, Drafts
from vllm_toys import close, make_llm, run, runner_of

pytestmark = pytest.mark.vllm

BYTES_PER_LAYER = 2 * 2 * 32 * 4  # keys and values of 2 heads of 32 dimensions in float32
LAYERS_ADDED = {
    "own head": 0,
    "head reading states": 1,
    "head of 2 layers reading states": 2,
    "trained draft reading states": NUM_LAYERS,
    "draft: a model nearby": NUM_LAYERS,
    "draft: another shape": 1.5,
}


def cache_bytes_per_token(runner: Any) -> float:
    caches = {cache.data_ptr(): cache for cache in runner.kv_caches}
    config = runner.kv_cache_config
    num_tokens = config.num_blocks * config.kv_cache_groups[0].kv_cache_spec.block_size
    return sum(cache.numel() * cache.element_size() for cache in caches.values()) / num_tokens


@pytest.mark.parametrize("name", LAYERS_ADDED)
def test_bytes_per_token_are_those_of_what_drafts(
    name: str, model: LlamaForCausalLM, folder: Path, tmp_path: Path
) -> None:
    """vLLM plans them: with more of them, the same memory holds fewer tokens (F171)."""
    from vllm import SamplingParams

    llm = make_llm(folder, Drafts(model, tmp_path).options(name), block_size=32)
    try:
        runner = runner_of(llm)
        run(llm, [[1, 2, 3]], SamplingParams(temperature=0, max_tokens=8, detokenize=False))
        added = cache_bytes_per_token(runner) / BYTES_PER_LAYER - NUM_LAYERS
        states = runner.drafter.backing.hidden_states
        if states is not None:
            assert len(states._states) == runner.kv_cache_config.num_blocks, "one state per block"
    finally:
        close(llm)
    assert added == LAYERS_ADDED[name]


def test_requests_that_may_not_draft_run_no_drafting_pass(
    model: LlamaForCausalLM, folder: Path, tmp_path: Path
) -> None:
    """Only the head's keys and values are written."""
    from vllm import SamplingParams

    llm = make_llm(folder, Drafts(model, tmp_path).options("head reading states"))
    try:
        backing = runner_of(llm).drafter.backing
        calls: list[str] = []
        for name in ("run", "store"):
            true_call = getattr(backing._exit, name)
            setattr(backing._exit, name, lambda *a, c=true_call, n=name: (calls.append(n), c(*a))[1])
        last = SamplingParams(temperature=0, max_tokens=1, detokenize=False)
        run(llm, [[1, 2, 3], [4, 5]], last)
        assert calls == ["store"]
        run(llm, [[1, 2, 3]], SamplingParams(temperature=0, max_tokens=8, detokenize=False))
        assert "run" in calls
    finally:
        close(llm)
