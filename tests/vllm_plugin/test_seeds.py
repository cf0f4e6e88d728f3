"""Seeded output: the same tokens alone and in a batch, and for any point-mass draft (F23, F25)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from toys import ScriptedProposer, oracle_of, random_prompts
from vllm_toys import run, runner_of

pytestmark = pytest.mark.vllm

PROMPTS = random_prompts(6, seed=5, longest=40)


def sampled(seed: int | None, **options: Any) -> Any:
    from vllm import SamplingParams

    given = {"temperature": 0.9, "top_p": 0.95, "max_tokens": 24, "ignore_eos": True, "detokenize": False}
    return SamplingParams(seed=seed, **(given | options))


def test_seeded_tokens_depend_on_nothing_but_the_seed(open_llm: Callable[..., Any]) -> None:
    llm = open_llm({"num_draft_tokens": 4})
    params = [sampled(seed) for seed in range(len(PROMPTS))]
    drafter = runner_of(llm).drafter
    drafter.proposer = ScriptedProposer(lambda tokens: [])
    undrafted = run(llm, PROMPTS, params)
    assert drafter.metrics.num_drafted_tokens == 0
    runs = [[*prompt, *output] for prompt, output in zip(PROMPTS, undrafted, strict=True)]
    for num_right, lengths in ((99, None), (1, [0, 4, 2])):
        drafter.proposer = ScriptedProposer(oracle_of(runs), num_right=num_right, lengths=lengths)
        assert run(llm, PROMPTS, params) == undrafted
    assert drafter.metrics.num_accepted_tokens > 100
    alone = [run(llm, [prompt], one)[0] for prompt, one in zip(PROMPTS, params, strict=True)]
    assert alone == undrafted


def test_a_seeded_request_whose_prompt_is_read_in_chunks(open_llm: Callable[..., Any]) -> None:
    """On a CPU stock vLLM dies of it ("CPU Generator does not use offset")."""
    prompts = [[*range(60)], *PROMPTS]
    params = [sampled(seed) for seed in range(len(prompts))]
    whole = run(open_llm({}, max_num_batched_tokens=512), prompts, params)
    assert run(open_llm({}, max_num_batched_tokens=32, enable_chunked_prefill=True), prompts, params) == whole


def test_without_a_seed_no_two_requests_share_a_stream(open_llm: Callable[..., Any]) -> None:
    llm = open_llm({"num_draft_tokens": 4})
    outputs = run(llm, [PROMPTS[0]] * 20, [sampled(None if one % 2 else 7) for one in range(20)])
    assert len({tuple(tokens) for tokens in outputs[1::2]}) == 10
    assert len({tuple(tokens) for tokens in outputs[::2]}) == 1, "equal seeds repeat"
