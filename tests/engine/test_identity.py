"""Greedy output is token-identical with speculation on, for any draft, width and batch (float32)."""

import pytest
from toys import ScriptedProposer, make_engine, oracle_of, random_prompts, run_tokens, toy_decoder

from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers.ngram import NgramProposer

GREEDY = SamplingParams(temperature=0, max_tokens=24)
PROMPTS = random_prompts(12)


@pytest.fixture(scope="module")
def plain() -> list[list[int]]:
    return run_tokens(make_engine(toy_decoder(num_rows=1)), PROMPTS, GREEDY)


@pytest.mark.parametrize("num_rows", [1, 5])
@pytest.mark.parametrize("width", [1, 3, 8])
@pytest.mark.parametrize("num_right", [0, 2, 1000])
def test_any_draft_leaves_greedy_output_alone(
    plain: list[list[int]], num_right: int, width: int, num_rows: int
) -> None:
    runs = [prompt + output for prompt, output in zip(PROMPTS, plain, strict=True)]
    proposer = ScriptedProposer(oracle_of(runs), num_right=num_right)
    engine = make_engine(toy_decoder(num_rows=num_rows), proposer, width)
    assert run_tokens(engine, PROMPTS, GREEDY) == plain
    assert engine.metrics.num_drafted_tokens > 0
    if num_right >= width:
        assert engine.metrics.num_accepted_tokens == engine.metrics.num_drafted_tokens
    if num_right == 0:
        assert engine.metrics.num_accepted_tokens == 0


def test_ragged_drafts(plain: list[list[int]]) -> None:
    """Rows that accept different numbers of tokens roll back each by its own (F83, F97)."""
    runs = [prompt + output for prompt, output in zip(PROMPTS, plain, strict=True)]
    proposer = ScriptedProposer(oracle_of(runs), num_right=2, lengths=[0, 3, 0, 5, 1])
    assert run_tokens(make_engine(toy_decoder(num_rows=5), proposer), PROMPTS, GREEDY) == plain


@pytest.mark.parametrize("min_n", [1, 2, 8])
def test_ngram(plain: list[list[int]], min_n: int) -> None:
    proposer = NgramProposer(min_n, 8)
    assert run_tokens(make_engine(toy_decoder(num_rows=4), proposer), PROMPTS, GREEDY) == plain


def test_prefill_chunks_do_not_matter(plain: list[list[int]]) -> None:
    engine = make_engine(toy_decoder(num_rows=3), NgramProposer(1, 3), prefill_chunk=7)
    assert run_tokens(engine, PROMPTS, GREEDY) == plain
