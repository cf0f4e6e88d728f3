from collections.abc import Callable
from dataclasses import replace

import pytest

from foredraft.integration.compare.offline.block_run import BlockRun, DecodeTotals, RequestTimes
from foredraft.integration.compare.results.figures import (
    first_token_times,
    ideal_speedup,
    per_token_times,
    percentiles,
    position_acceptance,
    time_split,
)

MakeRun = Callable[..., BlockRun]


def test_the_time_split_adds_up_to_one(make_run: MakeRun) -> None:
    split = time_split([make_run(1.0), make_run(1.0)])
    assert split == pytest.approx({"propose": 0.1, "forward": 0.6, "sample": 0.2, "rest": 0.1})


def test_percentiles_are_over_requests_of_all_blocks(make_run: MakeRun) -> None:
    first = replace(make_run(1.0), request_times=[RequestTimes(0.1, 0.01, 1.0), RequestTimes(0.2, None, 0.2)])
    second = replace(make_run(1.0), request_times=[RequestTimes(0.3, 0.03, 2.0)])
    first_token = first_token_times([first, second])
    assert first_token is not None
    assert first_token.model_dump() == pytest.approx({"median": 0.2, "p95": 0.29, "p99": 0.298})
    per_token = per_token_times([first, second])
    assert per_token is not None
    assert per_token.median == pytest.approx(0.02)


def test_no_requests_have_no_times(make_run: MakeRun) -> None:
    assert percentiles([]) is None
    assert first_token_times([make_run(1.0)]) is None


def test_acceptance_by_position_sums_blocks_of_different_lengths(make_run: MakeRun) -> None:
    first = replace(make_run(1.0), verified_per_position=[10, 4], accepted_per_position=[8, 1])
    second = replace(make_run(1.0), verified_per_position=[10], accepted_per_position=[2])
    assert position_acceptance([first, second]) == [0.5, 0.25]
    assert position_acceptance([make_run(1.0)]) == []
    assert position_acceptance([replace(first, verified_per_position=[0], accepted_per_position=[0])]) == [
        None
    ]


def test_the_ideal_is_tokens_per_step_over_what_a_step_costs(make_run: MakeRun) -> None:
    """3 tokens a step; verifying costs 1.2 plain steps and drafting 0.3: 3 / 1.5."""
    plain = DecodeTotals(10, 10, {"propose": 0.0, "forward": 1.0, "total": 9.0})
    own = DecodeTotals(10, 30, {"propose": 0.3, "forward": 1.2, "total": 9.0})
    runs = [replace(make_run(1.0), decode=own)] * 2
    assert ideal_speedup(runs, [replace(make_run(1.0), decode=plain)]) == pytest.approx(2.0)


def test_without_decoding_steps_there_is_no_ideal(make_run: MakeRun) -> None:
    assert ideal_speedup([make_run(1.0)], [make_run(1.0)]) is None
