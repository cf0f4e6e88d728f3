"""The budget of a run."""

from __future__ import annotations

import time


class Clock:
    """Starts when it is made.

    Args:
        budget_s: seconds for the whole run; ``None`` in a fixed design, which has no budget.
        used_before: of it by an earlier run that this one goes on from.
        max_blocks: of the run.
    """

    def __init__(self, budget_s: float | None, used_before: float, max_blocks: int) -> None:
        self._budget_s = budget_s
        self._started = time.monotonic()
        self._used_before = used_before
        self._max_blocks = max_blocks
        self._num_blocks = 0

    def count_block(self) -> None:
        """One more block is done."""
        self._num_blocks += 1

    @property
    def seconds_used(self) -> float:
        return self._used_before + time.monotonic() - self._started

    @property
    def seconds_left(self) -> float:
        """At most, under a budget; else going by the blocks so far."""
        if self._budget_s is not None:
            return max(self._budget_s - self.seconds_used, 0)
        return self.seconds_used / self._num_blocks * (self._max_blocks - self._num_blocks)

    def allows(self, seconds: float) -> bool:
        """Whether what takes so long still fits."""
        return self._budget_s is None or self.seconds_used + seconds <= self._budget_s
