"""Quantiles of Student's t, without scipy: numpy is all that an install brings along."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

NUM_POINTS = 4001


@lru_cache(maxsize=1024)
def student_quantile(probability: float, freedom: float) -> float:
    """The value that Student's t with ``freedom`` degrees stays below with ``probability``.

    Bisection on the upper tail. With t = sqrt(freedom) tan(angle) the density becomes cos(angle)^(freedom-1),
    which is smooth on a finite range, so a fixed Simpson rule gives more than nine digits.

    Raises:
        ValueError: ``probability`` outside [0.5, 1), or ``freedom`` below 1.
    """
    if not 0.5 <= probability < 1 or freedom < 1:
        raise ValueError(
            f"needs 0.5 <= probability < 1 and freedom >= 1, got {probability!r} and {freedom!r}"
        )
    wanted = 1 - probability
    whole = 2 * _tail(0.0, freedom)
    low, high = 0.0, math.pi / 2
    while high - low > 1e-13:
        middle = (low + high) / 2
        if _tail(middle, freedom) / whole > wanted:
            low = middle
        else:
            high = middle
    return math.sqrt(freedom) * math.tan((low + high) / 2)


def _tail(angle: float, freedom: float) -> float:
    """Integral of cos^(freedom-1) from ``angle`` to pi/2, by Simpson's rule."""
    points, step = np.linspace(angle, math.pi / 2, NUM_POINTS, retstep=True)
    heights = np.clip(np.cos(points), 0, None) ** (freedom - 1)
    inner = 4 * heights[1:-1:2].sum() + 2 * heights[2:-1:2].sum()
    return float((heights[0] + inner + heights[-1]) * step / 3)
