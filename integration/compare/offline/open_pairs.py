"""Which comparisons of a cell are still open: what the stop rule knows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from foredraft.integration.compare.offline.measure import MeasuredBlock
from foredraft.integration.compare.offline.output_check import judge
from foredraft.integration.compare.statistics.estimate import RatioEstimate, estimate_ratio
from foredraft.integration.compare.statistics.verdict import is_clear
from foredraft.integration.compare.variants import BASELINE


def block_ratios(name: str, blocks: Iterable[MeasuredBlock]) -> list[float]:
    """Logarithm of throughput over the baseline's, for each block that the configuration has served."""
    return [
        math.log(block.runs[name].tokens_per_s / block.runs[BASELINE].tokens_per_s)
        for block in blocks
        if name in block.runs
    ]


def speedup(name: str, blocks: Iterable[MeasuredBlock]) -> RatioEstimate:
    """The speedup of a configuration over the baseline in one cell."""
    return estimate_ratio(block_ratios(name, blocks))


def open_names(
    blocks: Sequence[MeasuredBlock], names: Sequence[str], level: float, min_effect: float
) -> list[str]:
    """Of the configurations called ``names`` those whose verdict more blocks could change.

    Args:
        blocks: all of one cell so far.
        level: of the intervals.
    """
    return [
        name
        for name in names
        if not _output_differs(name, blocks)
        and not is_clear(speedup(name, blocks).interval(level), min_effect)
    ]


def _output_differs(name: str, blocks: Iterable[MeasuredBlock]) -> bool:
    found = [one for block in blocks for one in block.differences.get(name) or ()]
    return judge(found).outputs_equal is False
