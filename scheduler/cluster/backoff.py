"""When a worker that failed is started again. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RestartPolicy:
    """How a worker is watched and started again. All times in seconds.

    Attributes:
        check_every_s: between two checks.
        check_deadline_s: for one check, which makes the worker do a little of its work.
        start_deadline_s: from the start of a worker to its first good check.
        first_wait_s: before the first restart; each further one waits twice as long.
        longest_wait_s: no restart waits longer.
        max_restarts: then the worker is given up.
        stable_s: a worker that was well for this long has its restarts forgiven.

    Raises:
        ValueError: a field that cannot be.
    """

    check_every_s: float = 2.0
    check_deadline_s: float = 10.0
    start_deadline_s: float = 180.0
    first_wait_s: float = 1.0
    longest_wait_s: float = 60.0
    max_restarts: int = 8
    stable_s: float = 300.0

    def __post_init__(self) -> None:
        for name in ("check_every_s", "check_deadline_s", "start_deadline_s", "first_wait_s", "stable_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}: must be above 0, got {getattr(self, name)}")
        if self.longest_wait_s < self.first_wait_s:
            raise ValueError(f"longest_wait_s: must be at least first_wait_s, got {self.longest_wait_s}")
        if self.max_restarts < 0:
            raise ValueError(f"max_restarts: must be 0 or more, got {self.max_restarts}")


class Backoff:
    """Counts the restarts of one worker."""

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self._in_a_row = 0

    def wait_before_restart(self, well_for_s: float) -> float | None:
        """Seconds to wait before the next restart; ``None`` = give up.

        Args:
            well_for_s: how long the worker that failed had been well.
        """
        if well_for_s >= self._policy.stable_s:
            self._in_a_row = 0
        if self._in_a_row >= self._policy.max_restarts:
            return None
        self._in_a_row += 1
        wait: float = self._policy.first_wait_s * 2.0 ** min(self._in_a_row - 1, 60)
        return min(wait, self._policy.longest_wait_s)
