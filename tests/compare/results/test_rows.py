import json
from collections.abc import Callable

import pytest

from foredraft.integration.compare.offline.closed_loop import BlockRun
from foredraft.integration.compare.offline.measure import MeasuredBlock
from foredraft.integration.compare.offline.output_check import Difference
from foredraft.integration.compare.plan import Cell
from foredraft.integration.compare.results.rows import (
    FirstDifference,
    paired_speedup,
    result_rows,
    time_split,
)

CELL = Cell("toy", 1, 0.0)
REQUIRED_KEYS = {
    "proposer",
    "workload",
    "batch_size",
    "temperature",
    "num_draft_tokens",
    "tokens_per_s",
    "speedup",
    "acceptance_rate",
    "acceptance_length",
    "outputs_equal",
    "first_difference",
}

MakeRun = Callable[..., BlockRun]


def block(
    baseline: BlockRun,
    run: BlockRun,
    differences: list[Difference | None] | None,
    cell: Cell = CELL,
    prompt_id: str = "p",
) -> MeasuredBlock:
    return MeasuredBlock(
        cell, [prompt_id], {"none": baseline, "ngram": run}, {"none": [None], "ngram": differences}
    )


def test_the_speedup_is_the_median_of_paired_ratios(make_run: MakeRun) -> None:
    """The machine got ten times slower in the last block; the ratio of totals would be 12 / 12.5."""
    baseline = [make_run(1.0), make_run(1.0), make_run(10.0)]
    runs = [make_run(0.5), make_run(0.5), make_run(11.5)]
    assert paired_speedup(runs, baseline) == pytest.approx(2.0)


def test_a_row_sums_its_blocks(make_run: MakeRun) -> None:
    blocks = [
        block(make_run(2.0), make_run(1.0, drafted=80, accepted=40, passes=60), [None]),
        block(make_run(2.0), make_run(3.0, drafted=20, accepted=20, passes=80), [None]),
    ]
    none, ngram = result_rows(blocks)
    assert (none.proposer, none.speedup, none.acceptance_rate, none.acceptance_length) == (
        "none",
        1.0,
        None,
        1.0,
    )
    assert (ngram.drafted_tokens, ngram.accepted_tokens, ngram.emitted_tokens) == (100, 60, 200)
    assert ngram.acceptance_rate == pytest.approx(0.6)
    assert ngram.acceptance_length == pytest.approx(200 / 140)
    assert ngram.tokens_per_s == pytest.approx(200 / 4.0)
    assert ngram.speedup == pytest.approx((2.0 + 2 / 3) / 2)
    assert (ngram.num_prompts, ngram.num_blocks, ngram.num_draft_tokens) == (2, 2, 5)
    assert ngram.outputs_equal is True


def test_cells_do_not_mix(make_run: MakeRun) -> None:
    other = Cell("toy", 8, 0.0)
    blocks = [block(make_run(1.0), make_run(0.5), [None]), block(make_run(1.0), make_run(2.0), [None], other)]
    rows = result_rows(blocks)
    assert [(row.batch_size, row.proposer, row.speedup) for row in rows] == [
        (1, "none", 1.0),
        (1, "ngram", 2.0),
        (8, "none", 1.0),
        (8, "ngram", 0.5),
    ]


def test_a_difference_names_its_prompt(make_run: MakeRun) -> None:
    found = Difference(3, 0.25, 0.125, near_tie=False)
    blocks = [
        block(make_run(1.0), make_run(1.0), [None], prompt_id="first"),
        block(make_run(1.0), make_run(1.0), [found], prompt_id="second"),
    ]
    row = result_rows(blocks)[1]
    assert row.outputs_equal is False
    assert row.first_difference == FirstDifference("second", 3, 0.25, 0.125)
    assert row.as_json()["first_difference"] == {
        "prompt_id": "second",
        "position": 3,
        "logit_gap": 0.25,
        "rounding": 0.125,
    }


def test_an_unchecked_output_is_null(make_run: MakeRun) -> None:
    row = result_rows([block(make_run(1.0), make_run(1.0), None)])[1]
    assert row.outputs_equal is None
    assert row.first_difference is None


def test_rows_are_json_with_the_documented_keys(make_run: MakeRun) -> None:
    for row in result_rows([block(make_run(1.0), make_run(1.0), [None])]):
        assert set(json.loads(json.dumps(row.as_json(), allow_nan=False))) >= REQUIRED_KEYS


def test_the_time_split_adds_up_to_one(make_run: MakeRun) -> None:
    split = time_split([make_run(1.0), make_run(1.0)])
    assert split == pytest.approx({"propose": 0.1, "forward": 0.6, "sample": 0.2, "rest": 0.1})


def test_no_blocks_give_no_rows() -> None:
    assert result_rows([]) == []
