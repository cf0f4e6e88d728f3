"""When to look again: requests that do not draft try a token now and then, those that do a plain step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foredraft.scheduler.request_slots import Ints, grown
from foredraft.scheduler.step_cost import batch_class

MAX_INTERVAL = 24
"""Steps between the probes of a request at most."""

MAX_CHECK_INTERVAL = 128
"""Steps between the checks of a batch at most."""


class RequestProbes:
    """Per request: a probe that brought nothing doubles the time to the next one, another quarters it.

    Requests are named by their rows (``RequestSlots``).
    """

    def __init__(self) -> None:
        self._due = np.zeros(1, dtype=np.int64)
        self._interval = np.zeros(1, dtype=np.int64)

    def fit(self, size: int) -> None:
        """Make room for so many rows."""
        if len(self._due) < size:
            self._due, self._interval = grown(self._due, size), grown(self._interval, size)

    def clear(self, slot: int) -> None:
        """Forget a request; the next one in its row may probe at once."""
        self._due[slot] = self._interval[slot] = 0

    def due(self, slots: Ints, step: int) -> Ints:
        """Places of the requests whose turn it is, the most overdue first."""
        due = self._due[slots]
        places = np.flatnonzero(due <= step)
        return places[np.argsort(due[places], kind="stable")]

    def drafted(self, slots: Ints, num_drafted: Ints, num_accepted: Ints, step: int) -> None:
        """Requests were asked for drafts, by probe or plan. Where nothing was found it may be tried again."""
        longer = np.clip(2 * self._interval[slots], 2, MAX_INTERVAL)
        sooner = np.maximum(self._interval[slots] // 4, 1)
        interval = np.where(num_accepted > 0, sooner, longer)
        self._interval[slots] = np.where(num_drafted > 0, interval, self._interval[slots])
        self._due[slots] = step + np.where(num_drafted > 0, interval, 1)


@dataclass
class _Backoff:
    interval: int
    due: int


class BatchChecks:
    """Per batch size: steps that do something else than the plan, ever more rarely.

    What a step without drafts costs must be known, or a gain is only believed; and whether drafting further
    would pay is not known before it has been tried.
    """

    def __init__(self, first: int, offset: int) -> None:
        self._first, self._offset = first, offset
        self._batches: dict[float, _Backoff] = {}

    def due(self, num_requests: int, step: int) -> bool:
        """Whether it is time. Counts as done when it says so."""
        batch = batch_class(num_requests)
        backoff = self._batches.setdefault(batch, _Backoff(self._first, step + self._offset))
        if step < backoff.due:
            return False
        backoff.due = step + backoff.interval
        backoff.interval = min(2 * backoff.interval, MAX_CHECK_INTERVAL)
        return True
