"""What drafting costs: seconds by drafting steps, tokens asked for and tokens to catch up on."""

from __future__ import annotations

import numpy as np

from foredraft.scheduler.speculation.request_rows import Floats

FORGETTING = 0.98
RIDGE = np.array([1e-2, 1e-2, 1e-2, 1e-4])
"""Keeps what the steps do not tell apart where it was, the cost of catching up least: if a first draft
takes long after much was read, the reading is to blame."""

MAX_SURPRISE = 3.0
SURPRISING_AFTER = 5

FIXED, PER_STEP, PER_ASKED, PER_UNREAD = range(4)


class DraftingCost:
    """Least squares with forgetting: fixed, per step, per token asked for, per unread token; none negative.

    A step of a draft model over R requests costs a + b R seconds, so that K steps cost a K + b (all tokens
    asked for). What it reads first, because it sat idle, is counted by token.

    Args:
        step_s: seconds of one drafting step, from a calibration; 0 = nothing is known.

    Attributes:
        costs: [4] seconds.
    """

    def __init__(self, step_s: float = 0.0) -> None:
        self.costs: Floats = np.array([0.0, step_s, 0.0, 0.0])
        self._products = np.zeros((4, 4))
        self._sums = np.zeros(4)
        self._num_seen = 0

    def seconds(self, num_steps: int, num_asked: int, num_unread: float = 0.0) -> float:
        """Predicted for drafts of ``num_steps`` tokens at most, ``num_asked`` together; 0 without a step."""
        if num_steps == 0:
            return 0.0
        return float(self.costs @ (1.0, num_steps, num_asked, num_unread))

    def observe(self, num_steps: int, num_asked: int, num_unread: float, seconds: float) -> None:
        """Learn from a step that drafted."""
        features = np.array([1.0, num_steps, num_asked, num_unread])
        expected = float(features @ self.costs)
        if self._num_seen >= SURPRISING_AFTER:
            seconds = min(seconds, MAX_SURPRISE * expected + 1e-4)
        self._num_seen += 1
        weight = 1.0 / max(seconds, expected, 1e-7) ** 2  # errors are relative
        self._products = FORGETTING * self._products + weight * np.outer(features, features)
        self._sums = FORGETTING * self._sums + weight * features * seconds
        ridge = RIDGE * self._products.diagonal() + 1e-9 * weight
        solved = np.linalg.solve(self._products + np.diag(ridge), self._sums + ridge * self.costs)
        self.costs = np.maximum(solved, 0.0)
