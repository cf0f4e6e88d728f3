"""Who is served next: one message per target waits, and targets take turns."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from foredraft.proposers.remote_messages import DraftAnswer, DraftRequest

ACTIVE_S = 0.1
"""A target that asked so recently is worth a moment of waiting."""


@dataclass(frozen=True)
class Job:
    """A message that waits for its answer since ``arrived``."""

    request: DraftRequest
    arrived: float
    future: Future[DraftAnswer] = field(default_factory=Future)

    @property
    def num_wanted(self) -> int:
        """Tokens to draft."""
        return sum(update.wanted for update in self.request.updates)


class Turns:
    """Messages of many targets, from any thread.

    Args:
        most_waiting: targets that may wait; more are sent away.
        batch_tokens: tokens to draft in one batch at most. Whoever comes first goes whatever it wants.
        gather_s: how long to wait for other active targets, so that they are served in one batch.
    """

    def __init__(
        self,
        most_waiting: int,
        batch_tokens: int,
        gather_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most_waiting, self._batch_tokens, self._gather_s = most_waiting, batch_tokens, gather_s
        self._clock = clock
        self._waiting: dict[str, Job] = {}
        self._turn: dict[str, int] = {}  # of each target the batch it was in last
        self._last_seen: dict[str, float] = {}
        self._last_step: dict[str, int] = {}
        self._num_batches = 0
        self._changed = threading.Condition()

    def put(self, job: Job) -> Job | None:
        """Let a message wait.

        Returns:
            The message that is not served: this one if there are too many or it is older than one before, or
            the one that it replaces; a target's newer message says all that the older one said.
        """
        target_id = job.request.target_id
        with self._changed:
            replaced = self._waiting.get(target_id)
            if job.request.step <= self._last_step.get(target_id, 0):
                return job
            if replaced is None and len(self._waiting) >= self._most_waiting:
                return job
            self._last_step[target_id] = job.request.step
            self._last_seen[target_id] = job.arrived
            self._waiting[target_id] = job
            self._changed.notify()
            return replaced

    def take(self, timeout_s: float) -> list[Job]:
        """The next batch, those first that were not served for longest; empty if nothing comes in time."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._waiting), timeout_s)
            if self._waiting:
                self._changed.wait_for(self._all_here, self._gather_s)
            return self._pop()

    def waits(self) -> bool:
        """Whether somebody does."""
        return bool(self._waiting)

    def empty(self) -> list[Job]:
        """Take out everybody."""
        with self._changed:
            jobs, self._waiting = list(self._waiting.values()), {}
            return jobs

    def forget(self, target_id: str) -> None:
        """A target that is gone."""
        with self._changed:
            for known in (self._turn, self._last_seen, self._last_step):
                known.pop(target_id, None)

    def _all_here(self) -> bool:
        active_since = self._clock() - ACTIVE_S
        return all(
            target_id in self._waiting or seen < active_since for target_id, seen in self._last_seen.items()
        )

    def _pop(self) -> list[Job]:
        jobs: list[Job] = []
        room = self._batch_tokens
        self._num_batches += 1
        for target_id in sorted(self._waiting, key=lambda one: self._turn.get(one, 0)):
            job = self._waiting[target_id]
            if jobs and job.num_wanted > room:
                break
            room -= job.num_wanted
            jobs.append(self._waiting.pop(target_id))
            self._turn[target_id] = self._num_batches
        return jobs
