"""When to look again: who does not draft tries now and then, a batch that drafts makes plain steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foredraft.scheduler.speculation.request_rows import Ints, grown
from foredraft.scheduler.speculation.step_cost import batch_class

Bools = NDArray[np.bool_]

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
    """Per request and arm (``members.Arms``), and per member over all requests.

    Probes fall on multiples of their interval, so that those of a batch share a step, and what it costs to
    draft at all.

    Args:
        member: [A], which member each arm belongs to.
    """

    def __init__(self, member: Ints) -> None:
        num_arms, num_members = len(member), int(member.max()) + 1
        self._member = member
        self._due = np.zeros((1, num_arms), dtype=np.int64)
        self._level = np.zeros((1, num_arms), dtype=np.int64)
        self._last = np.full((1, num_arms), NEVER)
        self._hit = np.zeros((1, num_arms), dtype=np.bool_)
        self._member_due = np.zeros(num_members, dtype=np.int64)
        self._member_level = np.zeros(num_members, dtype=np.int64)
        self._member_last = np.zeros(num_members, dtype=np.int64)

    def fit(self, size: int) -> None:
        """Make room for so many rows (``RequestTable``)."""
        if len(self._due) < size:
            added = np.full((size - len(self._last), self._last.shape[1]), NEVER)
            self._due, self._level = grown(self._due, size), grown(self._level, size)
            self._hit = grown(self._hit, size)
            self._last = np.concatenate([self._last, added])

    def clear(self, row: int) -> None:
        """Forget a request; the next one in its row may probe when its member may."""
        self._due[row] = self._level[row] = 0
        self._hit[row] = False
        self._last[row] = NEVER

    def due(self, rows: Ints, arms: Ints, drafts: Bools, step: int) -> Bools:
        """[B, M], whose turn it is, of the arms [B, M] that are offered: the request's own, and the member's.

        Args:
            drafts: [B], for whom another arm drafts already: there is less to be won.
        """
        if not (self._member_due <= step).any():
            return np.zeros(arms.shape, dtype=np.bool_)
        cells = rows[:, None], arms
        rested = ~drafts[:, None] | (step - self._last[cells] >= BESIDE_INTERVAL)
        return (self._due[cells] <= step) & (self._member_due <= step) & (arms > 0) & rested

    def in_turn(self, rows: Ints, arms: Ints) -> Ints:
        """Places of requests: those first of whose latest drafts by these arms [R] something was accepted, so
        that a hit is followed up though others wait; of the same those that drafted longest ago."""
        return np.lexsort((self._last[rows, arms], ~self._hit[rows, arms]))

    def long_ago(self, member: int, step: int) -> bool:
        """Whether a member has drafted for nobody for so long that costs may have become others."""
        return bool(step - self._member_last[member] >= LONG_AGO)

    def drafted(self, rows: Ints, arms: Ints, num_drafted: Ints, num_accepted: Ints, step: int) -> None:
        """Requests were asked for drafts, by probe or plan. Where nothing was found it may be tried again."""
        self._last[rows, arms] = self._member_last[self._member[arms]] = step
        before, found = self._level[rows, arms], num_drafted > 0
        level = np.where(found, _moved(before, num_accepted > 0), before)
        self._level[rows, arms] = level
        # Doubted only after as many misses in a row as a hit is worth levels.
        self._hit[rows, arms] = (num_accepted > 0) | (self._hit[rows, arms] & (level < len(INTERVALS) - 1))
        self._due[rows, arms] = _next_due(np.where(found, INTERVALS[level], 1), step)

    def probed(self, member: int, *, hit: bool, step: int) -> None:
        """A member was tried, for however many requests; whether anything was accepted."""
        level = _moved(self._member_level[[member]], np.array([hit]))
        self._member_level[[member]] = level
        self._member_due[[member]] = _next_due(INTERVALS[level], step)


def _moved(level: Ints, hit: Bools) -> Ints:
    return np.where(hit, np.maximum(level - 2, 0), np.minimum(level + 1, len(INTERVALS) - 1))


def _next_due(interval: Ints, step: int) -> Ints:
    return np.asarray((step // interval + 1) * interval)


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
