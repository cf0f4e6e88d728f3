"""Which comparisons of a cell are still open: what the stop rule knows."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from foredraft.integration.compare.offline.measure import MeasuredBlock
from foredraft.integration.compare.offline.output_check import judge
from foredraft.integration.compare.statistics.estimate import RatioEstimate, estimate_ratio
from foredraft.integration.compare.statistics.verdict import is_clear
from foredraft.integration.compare.variants import BASELINE

MIN_CHECKED_TOKENS = 2000
"""Output tokens of a configuration, over all cells: a fault in one token of 600 is missed in them with less
than 4 %, while the speed may be clear after some hundred."""


def block_ratios(name: str, blocks: Iterable[MeasuredBlock], against: str = BASELINE) -> list[float]:
    """Logarithm of speed over that of ``against``, for each block that both have served."""
    return [
        math.log(block.speed(name) / block.speed(against))
        for block in blocks
        if name in block.runs and against in block.runs
    ]


def speedup(name: str, blocks: Iterable[MeasuredBlock]) -> RatioEstimate:
    """The speedup of a configuration over the baseline in one cell."""
    return estimate_ratio(block_ratios(name, blocks))


def open_names(
    blocks: Sequence[MeasuredBlock],
    names: Sequence[str],
    level: float,
    min_effect: float,
    hardly_checked: Collection[str],
) -> list[str]:
    """Of the configurations called ``names`` those whose verdict more blocks could change.

    Args:
        blocks: all of one cell so far.
        level: of the intervals.
        hardly_checked: see ``hardly_checked_names``; they stay open however clear their speed is.
    """
    return [
        name
        for name in names
        if not _output_differs(name, blocks)
        and (name in hardly_checked or not is_clear(speedup(name, blocks).interval(level), min_effect))
    ]


def hardly_checked_names(blocks: Iterable[MeasuredBlock]) -> set[str]:
    """The configurations whose outputs are checked, but not enough of them yet.

    Args:
        blocks: of all cells.
    """
    num_checked: dict[str, int] = {}
    for block in blocks:
        for name, run in block.runs.items():
            if block.differences.get(name) is not None or name in block.places:
                num_checked[name] = num_checked.get(name, 0) + run.num_emitted_tokens
    return {name for name, count in num_checked.items() if count < MIN_CHECKED_TOKENS}


def _output_differs(name: str, blocks: Iterable[MeasuredBlock]) -> bool:
    found = [one for block in blocks for one in block.differences.get(name) or ()]
    return judge(found).outputs_equal is False
