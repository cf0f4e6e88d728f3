"""When to look again: requests that do not draft try a token now and then, and a batch that drafts a plain step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foredraft.scheduler.step_cost import batch_class

MAX_INTERVAL = 24
"""Steps between the probes of a request at most."""

MAX_CHECK_INTERVAL = 128
"""Steps between the checks of a batch at most."""


@dataclass
class _Backoff:
    interval: int
    due: int


class RequestProbes:
    """Per request: after a probe that brought nothing the next one comes twice as late, else at once."""

    def __init__(self) -> None:
        self._requests: dict[str, _Backoff] = {}

    def due(self, request_ids: Sequence[str], step: int) -> list[int]:
        """Places of the requests whose turn it is, the most overdue first."""
        waiting = [(self._of(name, step).due, place) for place, name in enumerate(request_ids)]
        return [place for due, place in sorted(waiting) if due <= step]

    def drafted(self, request_id: str, num_accepted: int, step: int) -> None:
        """A request drafted, by probe or by plan."""
        backoff = self._of(request_id, step)
        backoff.interval = 1 if num_accepted else min(2 * backoff.interval, MAX_INTERVAL)
        backoff.due = step + backoff.interval

    def release(self, request_id: str) -> None:
        """Forget a request."""
        self._requests.pop(request_id, None)

    def _of(self, request_id: str, step: int) -> _Backoff:
        if request_id not in self._requests:
            self._requests[request_id] = _Backoff(1, step)
        return self._requests[request_id]


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
