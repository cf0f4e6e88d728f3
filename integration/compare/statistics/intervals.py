"""Intervals of a ratio."""

from __future__ import annotations

import math
from collections.abc import Sequence

Interval = tuple[float, float]
"""Lower and upper end of a ratio."""


def combined_interval(intervals: Sequence[Interval | None]) -> Interval | None:
    """The interval of the geometric mean of several ratios; ``None`` if one of them has none.

    Where all the intervals hold, which they do together with the probability their level was chosen for, so
    does this one: whenever and for whatever reason each comparison ended. Adding variances would give a
    narrower interval, which runs that stop at a clear result do not deserve.

    Raises:
        ValueError: no interval.
    """
    if not intervals:
        raise ValueError("intervals needs at least one")
    known = [interval for interval in intervals if interval is not None]
    if len(known) < len(intervals):
        return None
    return _geometric_mean([low for low, _ in known]), _geometric_mean([high for _, high in known])


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(math.log(value) for value in values) / len(values))
