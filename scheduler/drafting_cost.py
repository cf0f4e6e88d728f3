"""What drafting costs: seconds by drafting steps, tokens asked for and tokens to catch up on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FORGETTING = 0.98
RIDGE = 1e-3
"""Keeps what the present steps do not tell apart where it was."""

MAX_SURPRISE = 3.0
SURPRISING_AFTER = 5


class DraftingCost:
    """Least squares with forgetting: fixed, per step, per token asked for, per unread token; none negative.

    A step of a draft model over R requests costs a + b R seconds, so that K steps cost a K + b (all tokens
    asked for). What it reads first, because it sat idle, is counted by token.

    Args:
        step_s: seconds of one drafting step, from a calibration; 0 = nothing is known.
    """

    def __init__(self, step_s: float = 0.0) -> None:
        self._costs = np.array([0.0, step_s, 0.0, 0.0])
        self._products = np.zeros((4, 4))
        self._sums = np.zeros(4)
        self._num_seen = 0

    @property
    def per_unread_token(self) -> float:
        """Seconds."""
        return float(self._costs[3])

    def seconds(self, num_steps: Ints, num_asked: Ints, num_unread: float = 0.0) -> Floats:
        """Predicted seconds, elementwise; 0 without a step."""
        fixed, per_step, per_asked, per_unread = self._costs
        return np.asarray(
            np.where(
                num_steps > 0,
                fixed + per_step * num_steps + per_asked * num_asked + per_unread * num_unread,
                0.0,
            )
        )

    def observe(self, num_steps: int, num_asked: int, num_unread: float, seconds: float) -> None:
        """Learn from a step that drafted."""
        features = np.array([1.0, num_steps, num_asked, num_unread])
        expected = float(features @ self._costs)
        if self._num_seen >= SURPRISING_AFTER:
            seconds = min(seconds, MAX_SURPRISE * expected + 1e-4)
        self._num_seen += 1
        weight = 1.0 / max(seconds, expected, 1e-7) ** 2  # errors are relative
        self._products = FORGETTING * self._products + weight * np.outer(features, features)
        self._sums = FORGETTING * self._sums + weight * features * seconds
        ridge = RIDGE * np.diag(self._products) + 1e-9 * weight
        solved = np.linalg.solve(self._products + np.diag(ridge), self._sums + ridge * self._costs)
        self._costs = np.maximum(solved, 0.0)
