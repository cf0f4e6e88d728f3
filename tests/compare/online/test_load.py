import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from foredraft.integration.compare.load import Load
from foredraft.integration.compare.online.client import OnlineRequest, Reply
from foredraft.integration.compare.online.load import Served, arrival_times, serve_block

REQUESTS = [OnlineRequest(str(number), (), 1, 0.0, number) for number in range(12)]
MANY = REQUESTS[:1] * 2000


def serve(load: Load, seconds: float) -> tuple[Served, int]:
    """The block, and how many requests were in flight at most."""
    lock, now, most = threading.Lock(), 0, 0

    def send(request: OnlineRequest) -> Reply:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(seconds)
        with lock:
            now -= 1
        return Reply(None, request.prompt_id, 1, seconds, seconds)

    return serve_block(send, REQUESTS, load, seed=1), most


def test_a_closed_loop_is_full_and_never_more() -> None:
    served, most = serve(Load(3), 0.02)
    assert most == 3
    assert [reply.text for reply in served.replies] == [request.prompt_id for request in REQUESTS]
    assert served.seconds >= 4 * 0.02
    assert served.latencies == [0.02] * 12


def test_arrivals_are_random_and_the_same_for_every_server() -> None:
    load = Load(8, arrivals_per_s=100.0)
    waits = arrival_times(load, MANY, seed=1)
    assert waits == arrival_times(load, MANY, seed=1)
    assert waits != arrival_times(load, MANY, seed=2)
    # The mean of 2000 exponential gaps of 0.01 s has a standard deviation of 0.00022 s.
    assert abs(waits[-1] / 1999 - 0.01) < 0.0011


def test_waiting_in_line_counts_as_latency() -> None:
    """One at a time, arriving much faster than they are served: the last waits for all others."""
    served, most = serve(Load(1, arrivals_per_s=1e4), 0.01)
    assert most == 1
    assert served.latencies[-1] > 0.09
    assert served.latencies[-1] > served.latencies[0]


@pytest.fixture
def hears_ctrl_c() -> Iterator[None]:
    """A process that a shell has started in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("hears_ctrl_c")
def test_ctrl_c_waits_neither_for_a_server_that_hangs_nor_for_the_queue() -> None:
    hangs, sent = threading.Event(), []

    def send(request: OnlineRequest) -> Reply:
        sent.append(request)
        hangs.wait(60)
        return Reply(None, "", 1, 1.0, 1.0)

    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        serve_block(send, REQUESTS, Load(3), seed=1)
    assert not hangs.is_set()
    hangs.set()
    time.sleep(0.1)
    assert len(sent) == 3, "what waited is not sent any more"


def test_a_fault_of_ours_is_not_swallowed() -> None:
    def send(request: OnlineRequest) -> Reply:
        raise ValueError("bug")

    with pytest.raises(ValueError, match="bug"):
        serve_block(send, REQUESTS, Load(3), seed=1)


def test_recorded_arrivals_begin_with_the_first_of_the_block() -> None:
    requests = [replace(REQUESTS[0], arrival_s=at) for at in (5.0, 5.25, 7.0)]
    assert arrival_times(Load(8, recorded=True), requests, seed=1) == [0.0, 0.25, 2.0]
