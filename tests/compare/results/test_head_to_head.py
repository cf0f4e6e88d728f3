from collections.abc import Callable

from foredraft.integration.compare.offline.closed_loop import BlockRun
from foredraft.integration.compare.offline.measure import MeasuredBlock
from foredraft.integration.compare.plan import Cell, ComparePlan
from foredraft.integration.compare.results.head_to_head import head_to_head_rows
from foredraft.integration.compare.results.model import HeadToHead

MakeRun = Callable[..., BlockRun]
MakePlan = Callable[..., ComparePlan]

NOISE = (1.0, 1.3, 0.9, 1.1, 0.8, 1.2, 1.0, 0.95)


def blocks_of(make_run: MakeRun, cell: Cell, seconds: dict[str, float]) -> list[MeasuredBlock]:
    """Slow spells hit everybody in a block alike."""
    return [
        MeasuredBlock(cell, number, ["p"], {name: make_run(own * noise) for name, own in seconds.items()}, {})
        for number, noise in enumerate(NOISE)
    ]


def rows_of(
    plan: ComparePlan, blocks: list[MeasuredBlock], wrong: frozenset[str] = frozenset()
) -> list[HeadToHead]:
    return head_to_head_rows(blocks, plan, 0.99, wrong)


def test_pairs_are_judged_by_the_blocks_that_both_served(make_run: MakeRun, make_plan: MakePlan) -> None:
    plan = make_plan("ngram,draft")
    blocks = blocks_of(make_run, Cell("toy", 1, 0.0), {"none": 1.0, "ngram": 0.5, "draft": 0.55})
    blocks += blocks_of(make_run, Cell("toy", 1, 0.0), {"none": 1.0, "ngram": 0.1})
    (row,) = rows_of(plan, blocks)
    assert (row.config, row.against, row.verdict) == ("ngram", "draft", "faster")
    assert abs(row.speedup - 1.1) < 1e-9
    assert row.speedup_low is not None
    assert row.speedup_low > 1.05


def test_workloads_have_the_same_weight_and_conditions_a_row_each(
    make_run: MakeRun, make_plan: MakePlan
) -> None:
    plan = make_plan("ngram,draft", workloads=("toy", "prose"), batch_sizes=(1, 8))
    blocks = blocks_of(make_run, Cell("toy", 1, 0.0), {"none": 1.0, "ngram": 1.0, "draft": 4.0})
    blocks += blocks_of(make_run, Cell("prose", 1, 0.0), {"none": 1.0, "ngram": 1.0, "draft": 0.25})
    blocks += blocks_of(make_run, Cell("toy", 8, 0.0), {"none": 1.0, "ngram": 1.0, "draft": 0.5})
    rows = rows_of(plan, blocks)
    assert [(row.batch_size, row.num_workloads) for row in rows] == [(1, 2), (8, 1)]
    assert abs(rows[0].speedup - 1) < 1e-9
    assert rows[1].verdict == "slower"


def test_the_fast_and_wrong_beats_nobody(make_run: MakeRun, make_plan: MakePlan) -> None:
    blocks = blocks_of(make_run, Cell("toy", 1, 0.0), {"none": 1.0, "ngram": 0.5, "draft": 0.9})
    (row,) = rows_of(make_plan("ngram,draft"), blocks, wrong=frozenset({"ngram"}))
    assert row.verdict == "output differs"


def test_those_who_never_met_are_left_out(make_run: MakeRun, make_plan: MakePlan) -> None:
    blocks = blocks_of(make_run, Cell("toy", 1, 0.0), {"none": 1.0, "ngram": 0.5})
    assert rows_of(make_plan("ngram,draft"), blocks) == []
