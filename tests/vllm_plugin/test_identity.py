"""Greedy output with drafts is that of a stock vLLM without speculation (F1, F97, F99, F103)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from toys import ScriptedProposer, oracle_of, random_prompts
from vllm_toys import run, runner_of

pytestmark = pytest.mark.vllm

# Long ones, so that a chunk of 32 tokens cuts them; in pairs with a common start, which the cache keeps.
PROMPTS = [*random_prompts(6, seed=3, longest=90), *([7, 8, 9] * 20 + [end] for end in range(4))]
OPTIONS: dict[str, Any] = {"enable_chunked_prefill": True, "max_num_batched_tokens": 32, "block_size": 32}
LENGTH = 40


def greedy(**options: Any) -> Any:
    from vllm import SamplingParams

    return SamplingParams(temperature=0, max_tokens=LENGTH, ignore_eos=True, detokenize=False, **options)


@pytest.fixture(scope="module")
def plain(plain_run: Callable[..., list[list[int]]]) -> list[list[int]]:
    return plain_run(PROMPTS, greedy())


@pytest.mark.parametrize("batch", [1, 8])
def test_every_kind_of_draft(plain: list[list[int]], open_llm: Callable[..., Any], batch: int) -> None:
    llm = open_llm({"num_draft_tokens": 4, "ngram": {"min_n": 1}}, max_num_seqs=batch, **OPTIONS)
    drafter = runner_of(llm).drafter
    assert run(llm, PROMPTS, greedy()) == plain
    assert drafter.metrics.num_accepted_tokens > 0, "the n-gram drafts were of use"
    runs = [[*prompt, *output] for prompt, output in zip(PROMPTS, plain, strict=True)]
    for num_right, lengths in ((99, None), (2, [4, 0, 3, 1]), (0, None)):
        drafter.proposer = ScriptedProposer(oracle_of(runs), num_right=num_right, lengths=lengths)
        before = drafter.metrics.num_accepted_tokens
        assert run(llm, PROMPTS, greedy()) == plain, (num_right, lengths)
        assert (drafter.metrics.num_accepted_tokens > before) == (num_right > 0)
    assert drafter.metrics.num_proposer_faults == 0


def test_one_request_at_the_length_limit_stops_drafting_alone(
    plain_run: Callable[..., list[list[int]]], open_llm: Callable[..., Any]
) -> None:
    """Stock vLLM stops the drafting of the whole batch when one request nears the limit (F71, F75)."""
    prompts, limit = [[*range(80)], [5, 6, 7]], 95
    expected = plain_run(prompts, greedy(), max_model_len=limit)
    assert len(expected[0]) == limit - 80
    llm = open_llm({"num_draft_tokens": 4}, max_model_len=limit)
    runs = [[*prompt, *output] for prompt, output in zip(prompts, expected, strict=True)]
    proposer = runner_of(llm).drafter.proposer = ScriptedProposer(oracle_of(runs))
    assert run(llm, prompts, greedy()) == expected
    drafted = {outcome.block_start: outcome.num_drafted for outcome in proposer.outcomes}
    assert [drafted[start] for start in (81, 86, 91)] == [4, 4, 3], "5 tokens a step, until 95 are full"
    assert [drafted[start] for start in range(4, 39, 5)] == [4] * 7, "the short request never missed a draft"
