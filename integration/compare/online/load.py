"""Bring the requests of a block to a server, as its load says."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread

from foredraft.integration.compare.load import Load, poisson_arrivals
from foredraft.integration.compare.online.client import OnlineRequest, Reply

Send = Callable[[OnlineRequest], Reply]
Line = SimpleQueue[tuple[Future[tuple[Reply, float]], OnlineRequest] | None]
"""Requests on their way to the threads that send them; ``None`` ends one of these."""


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
    """Send all requests. Ctrl-C ends it at once: what is in flight then is left to itself.

    Args:
        seed: of the arrival times; the same for every server.
    """
    line: Line = SimpleQueue()
    num_threads = min(load.concurrency, len(requests))
    for _ in range(num_threads):
        # Not a pool: the interpreter would wait for its threads, and so for a server that hangs.
        Thread(target=_send_from, args=(line, send), daemon=True).start()
    started = time.perf_counter()
    futures: list[Future[tuple[Reply, float]]] = []
    arrived = []
    try:
        for request, wait in zip(requests, arrival_times(load, requests, seed), strict=True):
            time.sleep(max(started + wait - time.perf_counter(), 0))
            arrived.append(time.perf_counter())
            futures.append(Future())
            line.put((futures[-1], request))
        ended = [future.result() for future in futures]
    finally:
        _end(line, num_threads)
    latencies = [end - begin for begin, (_, end) in zip(arrived, ended, strict=True)]
    if not load.has_arrivals:
        latencies = [reply.seconds for reply, _ in ended]
    return Served(max(end for _, end in ended) - started, [reply for reply, _ in ended], latencies)


def _send_from(line: Line, send: Send) -> None:
    while (entry := line.get()) is not None:
        future, request = entry
        try:
            future.set_result((send(request), time.perf_counter()))
        except BaseException as error:
            future.set_exception(error)


def _end(line: Line, num_threads: int) -> None:
    """Let the threads end, without sending what still waits."""
    while True:
        try:
            line.get_nowait()
        except Empty:
            break
    for _ in range(num_threads):
        line.put(None)


def arrival_times(load: Load, requests: Sequence[OnlineRequest], seed: int) -> list[float]:
    """Seconds from the start of a block to each arrival."""
    if load.recorded:
        times = [request.arrival_s or 0.0 for request in requests]
        return [one - times[0] for one in times]
    if load.arrivals_per_s is None:
        return [0.0] * len(requests)
    return poisson_arrivals(load.arrivals_per_s, len(requests), seed)
