import threading
import time

from foredraft.integration.compare.online.client import OnlineRequest, Reply
from foredraft.integration.compare.online.load import Load, Served, _waits, serve_block

REQUESTS = [OnlineRequest(str(number), (), 1, 0.0, number) for number in range(12)]


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
    waits = _waits(load, 2000, seed=1)
    assert waits == _waits(load, 2000, seed=1)
    assert waits != _waits(load, 2000, seed=2)
    # The mean of 2000 exponential gaps of 0.01 s has a standard deviation of 0.00022 s.
    assert abs(waits[-1] / 1999 - 0.01) < 0.0011


def test_waiting_in_line_counts_as_latency() -> None:
    """One at a time, arriving much faster than they are served: the last waits for all others."""
    served, most = serve(Load(1, arrivals_per_s=1e4), 0.01)
    assert most == 1
    assert served.latencies[-1] > 0.09
    assert served.latencies[-1] > served.latencies[0]
