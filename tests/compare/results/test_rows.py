from collections.abc import Callable
from dataclasses import replace

import pytest

from foredraft.integration.compare.offline.block_run import BlockRun
from foredraft.integration.compare.offline.measure import MeasuredBlock
from foredraft.integration.compare.offline.output_check import Difference
from foredraft.integration.compare.plan import Cell, ComparePlan
from foredraft.integration.compare.results.model import FirstDifference, ResultRow
from foredraft.integration.compare.results.rows import overall_rows, result_rows

CELL = Cell("toy", 1, 0.0)
MakeRun = Callable[..., BlockRun]


@pytest.fixture
def plan(make_plan: Callable[..., ComparePlan]) -> ComparePlan:
    return make_plan()


def block(
    baseline: BlockRun,
    run: BlockRun,
    differences: list[Difference | None] | None = None,
    cell: Cell = CELL,
    prompt_id: str = "p",
    number: int = 0,
) -> MeasuredBlock:
    return MeasuredBlock(
        cell, number, [prompt_id], {"none": baseline, "ngram": run}, {"none": [None], "ngram": differences}
    )


def rows(blocks: list[MeasuredBlock], plan: ComparePlan) -> list[ResultRow]:
    return result_rows(blocks, plan, level=0.95)


def test_the_speedup_is_paired(make_run: MakeRun, plan: ComparePlan) -> None:
    """The machine got ten times slower in one block; the ratio of totals would be 1.21."""
    blocks = [block(make_run(1.0), make_run(0.5)) for _ in range(10)]
    blocks.append(block(make_run(10.0), make_run(11.5)))
    row = rows(blocks, plan)[1]
    assert row.speedup == pytest.approx(2.0)
    assert (row.verdict, row.num_blocks) == ("faster", 11)
    assert row.speedup_low is not None
    assert row.speedup_high is not None
    assert 1.3 < row.speedup_low < 2.0 < row.speedup_high


@pytest.mark.parametrize(
    ("seconds", "verdict"), [(0.5, "faster"), (1.0, "no difference shown"), (2.0, "slower")]
)
def test_verdicts_follow_the_interval(
    make_run: MakeRun, plan: ComparePlan, seconds: float, verdict: str
) -> None:
    blocks = [block(make_run(1.0), make_run(seconds * (1 + number / 1000))) for number in range(6)]
    none, ngram = rows(blocks, plan)
    assert (none.verdict, none.speedup, none.speedup_low, none.speedup_high) == (None, 1.0, 1.0, 1.0)
    assert ngram.verdict == verdict


def test_too_few_blocks_call_nothing(make_run: MakeRun, plan: ComparePlan) -> None:
    row = rows([block(make_run(1.0), make_run(0.1))], plan)[1]
    assert (row.speedup, row.speedup_low, row.speedup_high) == (pytest.approx(10), None, None)
    assert row.verdict == "too few blocks"


def test_what_is_fast_and_wrong_is_wrong(make_run: MakeRun, plan: ComparePlan) -> None:
    wrong = [Difference(3, 0.25, 0.125, near_tie=False)]
    blocks = [block(make_run(1.0), make_run(0.1), [None]) for _ in range(9)]
    row = rows([*blocks, block(make_run(1.0), make_run(0.1), wrong)], plan)[1]
    assert row.verdict == "output differs"


def test_a_near_tie_is_shown_and_not_condemned(make_run: MakeRun, plan: ComparePlan) -> None:
    tie = [Difference(3, 0.25, 0.125, near_tie=True)]
    row = rows([block(make_run(1.0), make_run(0.1), tie) for _ in range(9)], plan)[1]
    assert (row.outputs_equal, row.verdict) == ("near_tie", "faster")


def test_blocks_without_a_configuration_are_not_its_own(make_run: MakeRun, plan: ComparePlan) -> None:
    alone = MeasuredBlock(CELL, 1, ["p"], {"none": make_run(9.0)}, {"none": [None]})
    none, ngram = rows([block(make_run(2.0), make_run(1.0)), alone], plan)
    assert (none.num_blocks, none.seconds) == (2, 11.0)
    assert (ngram.num_blocks, ngram.seconds, ngram.speedup) == (1, 1.0, pytest.approx(2.0))


def test_over_all_workloads_each_weighs_the_same(make_run: MakeRun, plan: ComparePlan) -> None:
    other = Cell("prose", 1, 0.0)
    both = replace(plan, workloads=("toy", "prose"))
    blocks = [block(make_run(1.0), make_run(0.25), number=number) for number in range(6)]
    blocks += [block(make_run(1.0), make_run(1.0), cell=other, number=number) for number in range(20)]
    (overall,) = overall_rows(rows(blocks, both), 0.95, 0.01)
    assert (overall.config, overall.batch_size, overall.num_workloads) == ("ngram", 1, 2)
    assert overall.speedup == pytest.approx(2.0)
    assert overall.verdict == "faster"
    assert overall_rows(rows(blocks[:6], plan), 0.95, 0.01) == [], "one workload is its own whole"


def test_a_row_sums_its_blocks(make_run: MakeRun, plan: ComparePlan) -> None:
    blocks = [
        block(make_run(2.0), make_run(1.0, drafted=80, accepted=40, passes=60), [None]),
        block(make_run(2.0), make_run(3.0, drafted=20, accepted=20, passes=80), [None]),
    ]
    none, ngram = rows(blocks, plan)
    assert (none.config, none.speedup, none.acceptance_rate, none.acceptance_length) == (
        "none",
        1.0,
        None,
        1.0,
    )
    assert (ngram.drafted_tokens, ngram.accepted_tokens, ngram.emitted_tokens) == (100, 60, 200)
    assert ngram.acceptance_rate == pytest.approx(0.6)
    assert ngram.acceptance_length == pytest.approx(200 / 140)
    assert ngram.tokens_per_s == pytest.approx(200 / 4.0)
    assert ngram.speedup == pytest.approx((2.0 * 2 / 3) ** 0.5)
    assert ngram.wasted_tokens == 40
    assert (ngram.num_prompts, ngram.num_blocks, ngram.num_draft_tokens) == (2, 2, 5)
    assert ngram.outputs_equal is True


def test_cells_do_not_mix(make_run: MakeRun, plan: ComparePlan) -> None:
    other = Cell("toy", 8, 0.0)
    blocks = [block(make_run(1.0), make_run(0.5), [None]), block(make_run(1.0), make_run(2.0), [None], other)]
    found = rows(blocks, replace(plan, batch_sizes=(1, 8)))
    assert [(row.batch_size, row.config, round(row.speedup, 9)) for row in found] == [
        (1, "none", 1.0),
        (1, "ngram", 2.0),
        (8, "none", 1.0),
        (8, "ngram", 0.5),
    ]


def test_a_difference_names_its_prompt(make_run: MakeRun, plan: ComparePlan) -> None:
    found = Difference(3, 0.25, 0.125, near_tie=False)
    blocks = [
        block(make_run(1.0), make_run(1.0), [None], prompt_id="first"),
        block(make_run(1.0), make_run(1.0), [found], prompt_id="second"),
    ]
    row = rows(blocks, plan)[1]
    assert row.outputs_equal is False
    assert row.first_difference == FirstDifference(
        prompt_id="second", position=3, logit_gap=0.25, rounding=0.125
    )


def test_an_unchecked_output_is_null(make_run: MakeRun, plan: ComparePlan) -> None:
    row = rows([block(make_run(1.0), make_run(1.0), None)], plan)[1]
    assert row.outputs_equal is None
    assert row.first_difference is None


def test_rows_come_in_the_order_of_the_plan(make_run: MakeRun, plan: ComparePlan) -> None:
    several = replace(plan, workloads=("b", "a"), batch_sizes=(8, 1))
    cells = [Cell(name, size, 0.0) for name in ("a", "b/y", "b/x") for size in (1, 8)]
    found = rows([block(make_run(1.0), make_run(1.0), cell=cell) for cell in cells], several)
    assert [(row.workload, row.batch_size) for row in found[::2]] == [
        *(("b/x", 8), ("b/x", 1), ("b/y", 8), ("b/y", 1), ("a", 8), ("a", 1)),
    ]


def test_no_blocks_give_no_rows(plan: ComparePlan) -> None:
    assert rows([], plan) == []
