import math

from foredraft.integration.compare.results.base import HeadToHead
from foredraft.integration.compare.results.head_to_head import Judging, Met, head_to_head_rows

NOISE = (1.0, 1.03, 0.98, 1.01, 0.99, 1.02, 1.0, 0.97)


def met(condition: str, speeds: dict[str, float]) -> Met:
    """A cell in which those named ran at these speeds, up to noise."""

    def log_ratios(one: str, other: str) -> list[float]:
        if one not in speeds or other not in speeds:
            return []
        return [math.log(speeds[one] / speeds[other] * noise) for noise in NOISE]

    return Met((condition,), log_ratios)


def rows_of(cells: list[Met], wrong: frozenset[str] = frozenset()) -> list[HeadToHead]:
    return head_to_head_rows(cells, ["ngram", "draft"], Judging(0.99, 0.01, wrong))


def test_a_pair_has_a_ratio_an_interval_and_a_verdict() -> None:
    (row,) = rows_of([met("batch 1", {"ngram": 1.1, "draft": 1.0})])
    assert (row.config, row.against, row.conditions, row.verdict) == ("ngram", "draft", ["batch 1"], "faster")
    assert abs(row.speedup - 1.1) < 0.005
    assert row.speedup_low is not None
    assert row.speedup_low > 1.05


def test_workloads_have_the_same_weight_and_conditions_a_row_each() -> None:
    cells = [met("batch 1", {"ngram": 1.0, "draft": 0.25}), met("batch 1", {"ngram": 1.0, "draft": 4.0})]
    rows = rows_of([*cells, met("batch 8", {"ngram": 1.0, "draft": 2.0})])
    assert [(row.conditions, row.num_workloads) for row in rows] == [(["batch 1"], 2), (["batch 8"], 1)]
    assert abs(rows[0].speedup - 1) < 0.005
    assert rows[1].verdict == "slower"


def test_the_fast_and_wrong_beats_nobody() -> None:
    (row,) = rows_of([met("batch 1", {"ngram": 2.0, "draft": 1.0})], wrong=frozenset({"ngram"}))
    assert row.verdict == "output differs"


def test_those_who_never_met_are_left_out() -> None:
    assert rows_of([met("batch 1", {"ngram": 2.0})]) == []
