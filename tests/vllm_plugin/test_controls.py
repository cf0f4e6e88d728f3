"""Each control acts position by position: greedy output as in vLLM without speculation (F29 to F35)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from toys import ScriptedProposer, oracle_of, random_prompts
from vllm_toys import close, make_llm, run, runner_of

pytestmark = pytest.mark.vllm

PROMPTS = random_prompts(4, seed=6, longest=20)
VOCAB = 97
CONTROLS: dict[str, dict[str, Any]] = {
    "repetition penalty": {"repetition_penalty": 1.5},
    "presence and frequency penalty": {"presence_penalty": 1.5, "frequency_penalty": 1.0},
    "frequency bonus": {"frequency_penalty": -2.0},
    "bias": {"logit_bias": {5: 100.0}},
    "bans": {"logit_bias": dict.fromkeys(range(0, 97, 2), -100.0)},
    "allowed": {"allowed_token_ids": [3, 5, 8, 13, 21, 34, 55, 89]},
    "min_p, which greedy ignores": {"min_p": 0.5},
}


def greedy(**options: Any) -> Any:
    from vllm import SamplingParams

    return SamplingParams(**({"temperature": 0, "max_tokens": 20, "detokenize": False} | options))


def all_params(plain: Callable[[Any], list[list[int]]]) -> list[Any]:
    """Every control, and those that need to know what the model writes without them."""
    uncontrolled = plain([greedy()])[0]
    stop = uncontrolled[6]
    min_tokens = greedy(stop_token_ids=[stop], min_tokens=12)
    bad_words = greedy()
    # As vLLM sets it where there is a tokenizer: a word of one token, and one of two.
    bad_words._bad_words_token_ids = [[uncontrolled[2]], uncontrolled[8:10]]
    return [
        greedy(stop_token_ids=[stop]),
        min_tokens,
        bad_words,
        *(greedy(**one) for one in CONTROLS.values()),
    ]


@pytest.fixture(scope="module")
def expected(toy: Path) -> tuple[list[Any], list[list[int]]]:
    """Parameters, and what a stock vLLM writes with each of them after the prompts in turn."""
    llm = make_llm(toy)
    try:
        params = all_params(lambda one: run(llm, PROMPTS[:1], one))
        prompts = [PROMPTS[place % len(PROMPTS)] for place in range(len(params))]
        prompts[:3] = PROMPTS[:1] * 3
        return params, [prompts, run(llm, prompts, params)]
    finally:
        close(llm)


@pytest.fixture(scope="module")
def llm(toy: Path) -> Iterator[Any]:
    llm = make_llm(toy, {"num_draft_tokens": 5}, max_num_seqs=16)
    yield llm
    close(llm)


@pytest.mark.parametrize("num_right", [99, 2, 0], ids=["oracle", "partial", "wrong"])
def test_greedy_output_under_controls(expected: Any, llm: Any, num_right: int) -> None:
    params, (prompts, outputs) = expected
    runs = [[*prompt, *output] for prompt, output in zip(prompts, outputs, strict=True)]
    drafter = runner_of(llm).drafter
    for place, (prompt, one) in enumerate(zip(prompts, params, strict=True)):
        drafter.proposer = ScriptedProposer(oracle_of(runs[place : place + 1]), num_right=num_right)
        assert run(llm, [prompt], one) == [outputs[place]], one
    drafter.proposer = ScriptedProposer(oracle_of(runs[3:]), num_right=num_right)
    assert run(llm, prompts, params) == outputs, "all of them in one batch"


def test_the_cases_mean_something(expected: Any) -> None:
    params, (_, outputs) = expected
    assert len(outputs[0]) < 8 < 12 < len(outputs[1]), "min_tokens kept the stop token off"
    assert outputs[2][:3] != outputs[0][:3]
    assert set(outputs[3 + list(CONTROLS).index("bias")]) == {5}
    assert {token % 2 for token in outputs[3 + list(CONTROLS).index("bans")]} == {1}
    assert len({tuple(output) for output in outputs}) == len(params)
