"""How requests come: a fixed number in flight, or arrivals, at random or as recorded."""

from __future__ import annotations

import random
from dataclasses import dataclass

REQUESTS_PER_ARRIVALS = 16
"""Per block of arrivals: a burst stays in one piece, and there are several blocks."""

RECORDED = "recorded arrivals"


@dataclass(frozen=True)
class Load:
    """How hard a server or an engine is driven.

    Attributes:
        concurrency: requests in flight at most; under arrivals more wait in line.
        arrivals_per_s: Poisson arrivals; ``None`` = closed loop: a request enters as soon as another is done.
        recorded: whether each request arrives when it did in recorded traffic.
    """

    concurrency: int
    arrivals_per_s: float | None = None
    recorded: bool = False

    @property
    def has_arrivals(self) -> bool:
        """Whether arrivals fix the tokens/s, so that latencies are what differs."""
        return self.recorded or self.arrivals_per_s is not None

    @property
    def label(self) -> str:
        if self.recorded:
            return RECORDED
        if self.arrivals_per_s is None:
            return f"{self.concurrency} in flight"
        return f"{self.arrivals_per_s:g}/s"


def poisson_arrivals(arrivals_per_s: float, count: int, seed: int | str) -> list[float]:
    """Seconds from the start to each of ``count`` arrivals at random; the first comes at once."""
    gaps = random.Random(seed)
    times, at = [], 0.0
    for _ in range(count):
        times.append(at)
        at += gaps.expovariate(arrivals_per_s)
    return times
