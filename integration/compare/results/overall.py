"""From the rows of several workloads to one speedup over all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

from foredraft.integration.compare.results.base import CellRow
from foredraft.integration.compare.statistics.estimate import RatioEstimate, combined
from foredraft.integration.compare.statistics.verdict import speed_verdict

Row = TypeVar("Row", bound=CellRow)


def workload_groups(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows that differ in their workload alone, where there are several; the baseline is left out.

    A workload without a paired block has no speedup: then there is none over all either.
    """
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if not row.is_baseline:
            groups.setdefault((row.name, *row.conditions), []).append(row)
    return [group for group in groups.values() if len(group) > 1 and all(row.num_blocks for row in group)]


def speedup_over(rows: Sequence[CellRow], level: float, min_effect: float) -> dict[str, Any]:
    """The fields of ``Speedup`` for the geometric mean of rows.

    Args:
        level: of the interval.
    """
    parts = [
        RatioEstimate(math.log(row.speedup), row.standard_error, row.freedom, row.num_blocks) for row in rows
    ]
    wrong = any(row.verdict == "output differs" for row in rows)
    return ratio_fields(combined(parts), level, min_effect, is_wrong=wrong)


def ratio_fields(whole: RatioEstimate, level: float, min_effect: float, *, is_wrong: bool) -> dict[str, Any]:
    """The fields of ``Speedup`` for a ratio.

    Args:
        is_wrong: whether an output differs, which no speed makes up for.
    """
    interval = whole.interval(level)
    return {
        "speedup": whole.ratio,
        "speedup_low": interval[0] if interval else None,
        "speedup_high": interval[1] if interval else None,
        "standard_error": whole.standard_error,
        "freedom": whole.freedom,
        "verdict": "output differs" if is_wrong else speed_verdict(interval, min_effect),
    }
