"""Which of two is faster: by the blocks that both served, not by way of the baseline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import combinations

from foredraft.integration.compare.results.base import HeadToHead
from foredraft.integration.compare.results.overall import ratio_fields
from foredraft.integration.compare.statistics.estimate import combined, estimate_ratio


@dataclass(frozen=True)
class Met:
    """One cell.

    Attributes:
        conditions: load and temperature, in words.
        log_ratios: of two names, for each block that both served, log(speed of the one / of the other).
    """

    conditions: tuple[str, ...]
    log_ratios: Callable[[str, str], Sequence[float]]


@dataclass(frozen=True)
class Judging:
    """How differences are called.

    Attributes:
        level: of the intervals.
        wrong: whose output differs; no speed makes up for it.
    """

    level: float
    min_effect: float
    wrong: AbstractSet[str] = frozenset()


def head_to_head_rows(cells: Sequence[Met], names: Sequence[str], judging: Judging) -> list[HeadToHead]:
    """One row per condition and two of ``names``, over the workloads in which they met."""
    by_conditions: dict[tuple[str, ...], list[Met]] = {}
    for cell in cells:
        by_conditions.setdefault(cell.conditions, []).append(cell)
    rows = [
        _row(pair, chosen, judging) for chosen in by_conditions.values() for pair in combinations(names, 2)
    ]
    return [row for row in rows if row is not None]


def _row(pair: tuple[str, str], cells: Sequence[Met], judging: Judging) -> HeadToHead | None:
    """``None`` where the two never met."""
    ratios = [cell.log_ratios(*pair) for cell in cells]
    met = [estimate_ratio(each) for each in ratios if each]
    if not met:
        return None
    is_wrong = not judging.wrong.isdisjoint(pair)
    return HeadToHead(
        config=pair[0],
        against=pair[1],
        conditions=list(cells[0].conditions),
        num_workloads=len(met),
        **ratio_fields(combined(met), judging.level, judging.min_effect, is_wrong=is_wrong),
    )
