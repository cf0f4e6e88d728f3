"""Logprobs of drafted tokens, in all of vLLM's modes, are those of vLLM without speculation (F47)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from toys import ScriptedProposer, oracle_of, random_prompts
from vllm_toys import run, runner_of

pytestmark = pytest.mark.vllm

PROMPTS = random_prompts(4, seed=8, longest=20)


def params() -> list[Any]:
    from vllm import SamplingParams

    given = {"temperature": 0, "max_tokens": 12, "detokenize": False, "ignore_eos": True}
    return [
        SamplingParams(logprobs=3, **given),
        SamplingParams(logprobs=0, presence_penalty=1.0, **given),
        SamplingParams(logprobs=5, logit_bias={4: 3.0}, **given),
        SamplingParams(**given),
    ]


def logprobs_of(llm: Any, params: Any) -> tuple[list[list[int]], list[Any]]:
    prompts = [{"prompt_token_ids": prompt} for prompt in PROMPTS]
    outputs = [output.outputs[0] for output in llm.generate(prompts, params, use_tqdm=False)]
    return [list(output.token_ids) for output in outputs], [output.logprobs for output in outputs]


def assert_same(ours: list[Any], theirs: list[Any]) -> None:
    for our_request, their_request in zip(ours, theirs, strict=True):
        assert (our_request is None) == (their_request is None)
        for our_place, their_place in zip(our_request or [], their_request or [], strict=True):
            assert {token: one.rank for token, one in our_place.items()} == {
                token: one.rank for token, one in their_place.items()
            }
            for token, one in our_place.items():
                assert one.logprob == pytest.approx(their_place[token].logprob, abs=1e-5)


@pytest.mark.parametrize("mode", ["raw_logprobs", "raw_logits", "processed_logprobs", "processed_logits"])
def test_drafts_change_no_logprob(open_llm: Callable[..., Any], mode: str) -> None:
    from vllm_toys import close

    plain = open_llm(logprobs_mode=mode)
    tokens, expected = logprobs_of(plain, params())
    close(plain)
    llm = open_llm({"num_draft_tokens": 4}, logprobs_mode=mode)
    runs = [[*prompt, *output] for prompt, output in zip(PROMPTS, tokens, strict=True)]
    drafter = runner_of(llm).drafter
    for num_right in (99, 1):
        drafter.proposer = ScriptedProposer(oracle_of(runs), num_right=num_right, lengths=[4, 2, 3, 0])
        ours, logprobs = logprobs_of(llm, params())
        assert ours == tokens
        assert_same(logprobs, expected)
    assert drafter.metrics.num_accepted_tokens > 20


def test_processed_logprobs_of_sampled_tokens(open_llm: Callable[..., Any]) -> None:
    """The law a token was drawn from: three tokens with top-k 3, and their probabilities sum to 1."""
    import math

    from vllm import SamplingParams

    llm = open_llm({"num_draft_tokens": 4, "ngram": {"min_n": 1}}, logprobs_mode="processed_logprobs")
    one = SamplingParams(temperature=0.7, top_k=3, logprobs=5, max_tokens=12, detokenize=False, seed=1)
    outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in PROMPTS], one, use_tqdm=False)
    for place in (place for output in outputs for place in output.outputs[0].logprobs):
        probabilities = [math.exp(entry.logprob) for entry in place.values()]
        assert sum(probabilities) == pytest.approx(1, abs=1e-5)
        assert sum(probability > 0 for probability in probabilities) == 3
    assert run(llm, PROMPTS[:1], one) == [list(outputs[0].outputs[0].token_ids)]
