"""From values to places on paper, with round numbers for the axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

LETTER_WIDTH = 6.2
"""In the label of a tick; a gap is a letter."""


@dataclass(frozen=True)
class Scale:
    """Values from ``low`` to ``high`` on places from ``start`` to ``end``; ``is_log`` for ratios."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]
    is_log: bool = False

    def __call__(self, value: float) -> float:
        """The place of a value; values outside are drawn at the edge."""
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.is_log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        return self.start + (at - low) / (high - low) * (self.end - self.start)


def linear_scale(values: Sequence[float], start: float, end: float) -> Scale:
    """From 0 to a little more than the largest value."""
    largest = max([*values, 0.0]) or 1.0
    step = _round_step(largest / 4)
    count = math.ceil(largest / step)
    ticks = tuple(step * number for number in range(count + 1))
    return Scale(0.0, ticks[-1], start, end, ticks)


def ratio_scale(ratios: Sequence[float], start: float, end: float) -> Scale:
    """Logarithmic, with 1 inside: twice as fast is as far from 1 as half as fast."""
    low = min([*ratios, 0.9]) * 0.95
    high = max([*ratios, 1.1]) * 1.05
    steps: tuple[float, ...] = (
        0.01,
        0.1,
        0.25,
        0.5,
        0.8,
        1.0,
        1.25,
        1.5,
        2.0,
        3.0,
        4.0,
        6.0,
        8.0,
        10.0,
        100.0,
    )
    if high / low < 1.6:
        steps = (0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4)
    elif high / low > 5:
        steps = (0.01, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 10.0, 100.0)
    if high / low > 1e4:
        steps = tuple(10.0**power for power in range(-12, 13))
    scale = Scale(low, high, start, end, tuple(tick for tick in steps if low <= tick <= high), is_log=True)
    return replace(scale, ticks=_apart(scale))


def _apart(scale: Scale) -> tuple[float, ...]:
    """The ticks whose labels do not run into each other: 1, and the nearest for which there is room."""
    room = LETTER_WIDTH * (max((len(f"{tick:g}x") for tick in scale.ticks), default=0) + 1)
    kept: list[float] = []
    for tick in sorted(scale.ticks, key=lambda tick: abs(math.log(tick))):
        if all(abs(scale(tick) - scale(other)) >= room for other in kept):
            kept.append(tick)
    return tuple(sorted(kept))


def place_scale(places: Sequence[float], start: float, end: float, *, by_factors: bool) -> Scale:
    """A few given places, each a tick; logarithmic where they grow by factors, as batch sizes do."""
    low, high = min(places), max(places)
    if low == high:
        low, high, by_factors = low - 0.5, high + 0.5, False
    return Scale(low, high, start, end, tuple(sorted(set(places))), is_log=by_factors)


def _round_step(rough: float) -> float:
    """1, 2 or 5 times a power of ten, not below ``rough``."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
