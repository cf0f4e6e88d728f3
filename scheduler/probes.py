"""When to look again: who does not draft tries now and then, a batch that drafts makes plain steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foredraft.scheduler.request_rows import SHARED, Ints, grown
from foredraft.scheduler.step_cost import batch_class

INTERVALS = np.array([1, 2, 4, 8, 24])
"""Steps between the probes of a request: one that brought nothing moves on to the next, another two back."""

BESIDE_INTERVAL = 48
"""Steps at least between the probes of a request for which something else drafts."""

NEVER = -1_000_000

LONG_AGO = 128
"""Steps after which a member is tried even where it could gain nothing, going by what it cost."""

MAX_CHECK_INTERVAL = 128
"""Steps between the plain steps of a batch at most."""


class RequestProbes:
    """Per request and arm (``members.Arms``).

    Probes fall on multiples of their interval, so that those of a batch share a step, and what it costs to
    draft at all.
    """

    def __init__(self, num_arms: int) -> None:
        self._due = np.zeros((1, num_arms), dtype=np.int64)
        self._level = np.zeros((1, num_arms), dtype=np.int64)
        self._last = np.full((1, num_arms), NEVER)

    def fit(self, size: int) -> None:
        """Make room for so many rows (``RequestRows``)."""
        if len(self._due) < size:
            added = np.full((size - len(self._last), self._last.shape[1]), NEVER)
            self._due, self._level = grown(self._due, size), grown(self._level, size)
            self._last = np.concatenate([self._last, added])

    def clear(self, row: int) -> None:
        """Forget a request; the next one in its row may probe at once."""
        self._due[row] = self._level[row] = 0
        self._last[row] = NEVER

    def due(self, rows: Ints, arms: Ints, drafts: NDArray[np.bool_], step: int) -> NDArray[np.bool_]:
        """[B, M], whose turn it is, of the arms [B, M] that are offered: the request's own, and that of all.

        Args:
            drafts: [B], for whom another arm drafts already: there is less to be won.
        """
        cells = rows[:, None], arms
        rested = ~drafts[:, None] | (step - self._last[cells] >= BESIDE_INTERVAL)
        turn = (self._due[cells] <= step) & (self._due[SHARED, arms] <= step)
        return np.asarray(turn & (arms > 0) & rested)

    def longest_waiting(self, rows: Ints, arms: Ints) -> Ints:
        """Places of requests, those first that drafted by these arms [R] longest ago."""
        return np.argsort(self._last[rows, arms], kind="stable")

    def long_ago(self, arm: int, step: int) -> bool:
        """Whether nobody has drafted by an arm for so long that costs may have become others."""
        return bool(step - self._last[SHARED, arm] >= LONG_AGO)

    def drafted(self, rows: Ints, arms: Ints, num_drafted: Ints, num_accepted: Ints, step: int) -> None:
        """Requests were asked for drafts, by probe or plan. Where nothing was found it may be tried again."""
        for arm in np.flatnonzero(np.bincount(arms)).tolist():
            own = arms == arm
            shared = np.array([SHARED]), np.array([arm])
            self._move(
                *shared, num_drafted[own].max(keepdims=True), num_accepted[own].max(keepdims=True), step
            )
        self._move(rows, arms, num_drafted, num_accepted, step)

    def _move(self, rows: Ints, arms: Ints, num_drafted: Ints, num_accepted: Ints, step: int) -> None:
        self._last[rows, arms] = step
        before, found = self._level[rows, arms], num_drafted > 0
        longer, shorter = np.minimum(before + 1, len(INTERVALS) - 1), np.maximum(before - 2, 0)
        level = np.where(num_accepted > 0, shorter, longer)
        self._level[rows, arms] = np.where(found, level, before)
        interval = np.where(found, INTERVALS[level], 1)
        self._due[rows, arms] = (step // interval + 1) * interval


@dataclass
class _Backoff:
    interval: int
    due: int


class PlainChecks:
    """Per batch size: plain steps of a batch that drafts, ever more rarely.

    What a step without drafts costs must be known, or a gain is only believed.

    Args:
        first: steps to the first one.
    """

    def __init__(self, first: int) -> None:
        self._first = first
        self._batches: dict[float, _Backoff] = {}

    def due(self, num_requests: int, step: int) -> bool:
        """Whether it is time."""
        return step >= self._of(num_requests, step).due

    def plain_step(self, num_requests: int, step: int) -> None:
        """One was made, for whatever reason."""
        backoff = self._of(num_requests, step)
        if step >= backoff.due:
            backoff.interval = min(2 * backoff.interval, MAX_CHECK_INTERVAL)
        backoff.due = step + backoff.interval

    def _of(self, num_requests: int, step: int) -> _Backoff:
        batch = batch_class(num_requests)
        if batch not in self._batches:
            self._batches[batch] = _Backoff(self._first, step + self._first)
        return self._batches[batch]
