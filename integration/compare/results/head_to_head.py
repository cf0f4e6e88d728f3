"""Which of two configurations is faster: by the blocks that both served, not by way of the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from itertools import combinations

from foredraft.integration.compare.offline.measure import MeasuredBlock
from foredraft.integration.compare.offline.open_pairs import block_ratios
from foredraft.integration.compare.plan import Cell, ComparePlan
from foredraft.integration.compare.results.model import HeadToHead
from foredraft.integration.compare.statistics.estimate import combined, estimate_ratio
from foredraft.integration.compare.statistics.verdict import speed_verdict
from foredraft.integration.compare.variants import BASELINE


def head_to_head_rows(
    blocks: Sequence[MeasuredBlock], plan: ComparePlan, level: float, wrong: AbstractSet[str]
) -> list[HeadToHead]:
    """One row per pair and condition, over the workloads in which they met.

    Args:
        wrong: configurations whose output differs; no speed makes up for it.
    """
    names = [name for name in plan.configs if name != BASELINE]
    by_condition: dict[tuple[int, float], dict[Cell, list[MeasuredBlock]]] = {}
    for block in blocks:
        condition = (block.cell.batch_size, block.cell.temperature)
        by_condition.setdefault(condition, {}).setdefault(block.cell, []).append(block)
    rows = [
        _row(pair, list(cells.values()), plan, level, is_wrong=not wrong.isdisjoint(pair))
        for cells in by_condition.values()
        for pair in combinations(names, 2)
    ]
    return [row for row in rows if row is not None]


def _row(
    pair: tuple[str, str],
    cells: Sequence[Sequence[MeasuredBlock]],
    plan: ComparePlan,
    level: float,
    *,
    is_wrong: bool,
) -> HeadToHead | None:
    """``None`` where the two never met."""
    ratios = [block_ratios(pair[0], blocks, against=pair[1]) for blocks in cells]
    met = [estimate_ratio(each) for each in ratios if each]
    if not met:
        return None
    whole, cell = combined(met), cells[0][0].cell
    interval = whole.interval(level)
    return HeadToHead(
        config=pair[0],
        against=pair[1],
        batch_size=cell.batch_size,
        temperature=cell.temperature,
        num_workloads=len(met),
        speedup=whole.ratio,
        speedup_low=interval[0] if interval else None,
        speedup_high=interval[1] if interval else None,
        standard_error=whole.standard_error,
        freedom=whole.freedom,
        verdict="output differs" if is_wrong else speed_verdict(interval, plan.min_effect),
    )
