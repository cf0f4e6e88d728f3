"""Seeds: what repeats, what must differ, and that speculation changes neither."""

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from drawing import DrawingProposer
from scipy.stats import chi2
from toys import (
    TableDecoder,
    make_engine,
    random_prompts,
    run_tokens,
    toy_decoder,
)

from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers import Proposer
from foredraft.proposers.ngram import NgramProposer

MakeProposer = Callable[..., Proposer]
PROMPTS = random_prompts(6, seed=3)
SEEDED = [SamplingParams(seed=seed, top_p=0.9, max_tokens=20) for seed in range(len(PROMPTS))]
UNIFORM = torch.zeros(8, 8)


@pytest.fixture(scope="module")
def alone() -> list[list[int]]:
    """Each seeded request on an engine of one row, without speculation."""
    return run_tokens(make_engine(toy_decoder(num_rows=1)), PROMPTS, SEEDED)


@pytest.mark.parametrize("width", range(1, 9))
def test_any_draft_leaves_seeded_output_alone(
    alone: list[list[int]], draft_kind: str, width: int, make_proposer: MakeProposer
) -> None:
    runs = [prompt + output for prompt, output in zip(PROMPTS, alone, strict=True)]
    proposer = make_proposer(draft_kind, runs)
    engine = make_engine(toy_decoder(num_rows=4), proposer, width)
    assert run_tokens(engine, PROMPTS, SEEDED) == alone
    assert engine.metrics.num_drafted_tokens > 0
    if draft_kind == "oracle":
        assert engine.metrics.num_accepted_tokens == engine.metrics.num_drafted_tokens


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_prefill_chunks_and_batch_leave_seeded_output_alone(alone: list[list[int]], chunk: int) -> None:
    engine = make_engine(toy_decoder(num_rows=6), NgramProposer(1, 3), prefill_chunk=chunk)
    assert run_tokens(engine, PROMPTS, SEEDED) == alone


def test_seeded_and_unseeded_rows_in_one_batch(alone: list[list[int]]) -> None:
    """F23: seeded rows equal their solo runs, the others are sane: near greedy they are greedy."""
    mixed = [SEEDED[0], SamplingParams(temperature=0.001, max_tokens=20)] * 3
    mixed[2], mixed[4] = SEEDED[2], SEEDED[4]
    outputs = run_tokens(make_engine(toy_decoder(num_rows=6), NgramProposer(1, 3)), PROMPTS, mixed)
    greedy = run_tokens(make_engine(toy_decoder()), PROMPTS, SamplingParams(temperature=0, max_tokens=20))
    assert outputs[::2] == alone[::2]
    assert outputs[1::2] == greedy[1::2]


@pytest.mark.parametrize("reused_id", [True, False])
def test_unseeded_requests_differ(reused_id: bool) -> None:
    """F25: one after the other, with one id used again too. Equal by chance: 8**-16 each."""
    engine = make_engine(TableDecoder(UNIFORM), NgramProposer(1, 3))
    outputs = []
    for number in range(20):
        request_id = "again" if reused_id else str(number)
        engine.add_request(request_id, [1], SamplingParams())
        outputs += [
            tuple(output.outputs[0].token_ids) for output in engine.stream([request_id]) if output.finished
        ]
    assert len(set(outputs)) == 20


def test_the_engine_seed_repeats_and_matters() -> None:
    """Unseeded requests repeat on a new engine with the same seed, in the same process too."""
    outputs = [
        run_tokens(make_engine(TableDecoder(UNIFORM), proposer, seed=seed), [[1], [2]], SamplingParams())
        for seed, proposer in [(1, None), (1, NgramProposer(1, 3)), (2, None)]
    ]
    assert outputs[0] == outputs[1]
    assert outputs[0] != outputs[2]


@pytest.mark.parametrize("seed", [None, 0, -(2**63), 2**63 - 1])
def test_completions_of_one_request_differ(seed: int | None) -> None:
    """Completion i of a seeded request has seed + i, which may pass the largest int64."""
    engine = make_engine(TableDecoder(UNIFORM, num_rows=4))
    (request,) = engine.generate([[1]], SamplingParams(n=9, seed=seed))
    assert [output.index for output in request.outputs] == list(range(9))
    assert len({tuple(output.token_ids) for output in request.outputs}) == 9


def test_completion_i_has_seed_plus_i() -> None:
    engine = make_engine(TableDecoder(UNIFORM))
    (request,) = engine.generate([[1]], SamplingParams(n=3, seed=5))
    single = run_tokens(engine, [[1]] * 3, [SamplingParams(seed=5 + i) for i in range(3)])
    assert [output.token_ids for output in request.outputs] == single


@pytest.mark.parametrize("proposer", [None, DrawingProposer(UNIFORM)], ids=["plain", "drawn drafts"])
def test_tokens_of_a_block_are_independent(proposer: Proposer | None) -> None:
    """F27: pairs of neighbours, 50 000 of each parity; every draft is accepted. Alarm at p < 1e-6."""
    engine = make_engine(TableDecoder(UNIFORM, num_rows=256, capacity=128), proposer, 7)
    requests = engine.generate([[1]] * 8, SamplingParams(n=128, max_tokens=100))
    assert engine.metrics.num_accepted_tokens == engine.metrics.num_drafted_tokens
    outputs = [output.token_ids for request in requests for output in request.outputs]
    for first in (0, 1):
        pairs = [pair for ids in outputs for pair in zip(ids[first::2], ids[first + 1 :: 2], strict=False)]
        counts, expected = Counter(pairs), len(pairs) / 64
        statistic = sum((counts[a, b] - expected) ** 2 / expected for a in range(8) for b in range(8))
        assert chi2.sf(statistic, 63) > 1e-6
