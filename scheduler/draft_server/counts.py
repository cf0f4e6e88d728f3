"""What a draft server counts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass


@dataclass
class ServerCounts:
    """Since the server began.

    Attributes:
        num_answered, num_busy: messages that got an answer, and that were sent away.
        num_late: messages whose deadline was over before their turn came.
        num_batches: calls of the proposer that somebody waited for.
        num_ahead_hits, num_ahead_misses: assumptions about a request that came true, or not.
        seconds_answering: from a message's arrival to its answer, all together.
        seconds_drafting: spent in the proposer while somebody waited.
    """

    num_answered: int = 0
    num_busy: int = 0
    num_late: int = 0
    num_batches: int = 0
    num_faults: int = 0
    num_expired: int = 0
    num_ahead_hits: int = 0
    num_ahead_misses: int = 0
    seconds_answering: float = 0.0
    seconds_drafting: float = 0.0

    def note_ahead(self, hit: bool) -> None:
        """An assumption came true, or not."""
        self.num_ahead_hits += hit
        self.num_ahead_misses += not hit

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the time spent inside to a sum of seconds."""
        began = time.perf_counter()
        try:
            yield
        finally:
            setattr(self, name, getattr(self, name) + time.perf_counter() - began)

    def as_dict(self) -> dict[str, float | int | None]:
        """All of them, by name."""
        return asdict(self)
