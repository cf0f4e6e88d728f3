"""How requests reach a server: a fixed number in flight, or arrivals at random."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from foredraft.integration.compare.online.client import OnlineRequest, Reply

Send = Callable[[OnlineRequest], Reply]


@dataclass(frozen=True)
class Load:
    """How hard a server is driven.

    Attributes:
        concurrency: requests in flight at most; under arrivals more wait in line here.
        arrivals_per_s: Poisson arrivals; ``None`` = closed loop: a request enters as soon as another is done.
    """

    concurrency: int
    arrivals_per_s: float | None = None

    @property
    def label(self) -> str:
        if self.arrivals_per_s is None:
            return f"{self.concurrency} in flight"
        return f"{self.arrivals_per_s:g}/s"


@dataclass(frozen=True)
class Served:
    """One block at one server.

    Attributes:
        seconds: from the first request in to the last one out.
        latencies: per request, from its arrival to its end, waiting in line included.
    """

    seconds: float
    replies: list[Reply]
    latencies: list[float]


def serve_block(send: Send, requests: Sequence[OnlineRequest], load: Load, seed: int) -> Served:
    """Send all requests.

    Args:
        seed: of the arrival times; the same for every server.
    """
    started = time.perf_counter()
    with ThreadPoolExecutor(max_workers=load.concurrency) as pool:
        futures: list[Future[tuple[Reply, float]]] = []
        arrived = []
        for wait in _waits(load, len(requests), seed):
            time.sleep(max(started + wait - time.perf_counter(), 0))
            arrived.append(time.perf_counter())
            futures.append(pool.submit(_timed, send, requests[len(futures)]))
        ended = [future.result() for future in futures]
    latencies = [end - begin for begin, (_, end) in zip(arrived, ended, strict=True)]
    if load.arrivals_per_s is None:
        latencies = [reply.seconds for reply, _ in ended]
    return Served(max(end for _, end in ended) - started, [reply for reply, _ in ended], latencies)


def _timed(send: Send, request: OnlineRequest) -> tuple[Reply, float]:
    return send(request), time.perf_counter()


def _waits(load: Load, count: int, seed: int) -> list[float]:
    """Seconds from the start to each arrival."""
    if load.arrivals_per_s is None:
        return [0.0] * count
    gaps = random.Random(seed)
    waits, at = [], 0.0
    for _ in range(count):
        waits.append(at)
        at += gaps.expovariate(load.arrivals_per_s)
    return waits
