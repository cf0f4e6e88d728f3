"""Replicas are killed under load: who was served by one gets a clear error, and nobody else anything else."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from openai_server import events, joined
from serve_replicas import ToyReplica, continued, process_ids

from foredraft.scheduler.serve import ServeOptions, Variant, build_application

pytestmark = [pytest.mark.ray, pytest.mark.slow]

NUM_REQUESTS, NUM_CLIENTS, NUM_KILLS, NUM_REPLICAS = 300, 8, 5, 2
WAIT_S = 120
NUM_TOKENS = 40


@dataclass(frozen=True)
class Outcome:
    """What a client saw, between two times."""

    began: float
    ended: float
    text: str
    code: str | None


def ask(client: httpx.Client, number: int) -> Outcome:
    """One request, every other one streamed; nothing is tried twice."""
    began = time.monotonic()
    asked = {"prompt": "abc", "max_tokens": NUM_TOKENS, "temperature": 0, "stream": number % 2 == 0}
    answer = client.post("/v1/completions", json=asked)
    text, error = "", None
    if number % 2 == 0 and answer.status_code == 200:
        pieces = events(answer.text)
        error = pieces[-1].get("error")
        text = joined([one for one in pieces if "choices" in one])
    elif answer.status_code == 200:
        text = answer.json()["choices"][0]["text"]
    else:
        error = answer.json()["error"]
    return Outcome(began, time.monotonic(), text, None if error is None else error["code"])


def num_serving(client: httpx.Client) -> int:
    return len(client.get("/status").json()["variants"][0]["replicas"])


def kill_now_and_then(client: httpx.Client, folder: Path, stopped: threading.Event) -> list[float]:
    """Kill the oldest replica that lives whenever all are serving; returns when."""
    times: list[float] = []
    killed: set[int] = set()
    while len(times) < NUM_KILLS and not stopped.wait(0.2):
        oldest = next(one for one in process_ids(folder, "only") if one not in killed)
        if num_serving(client) >= NUM_REPLICAS:
            os.kill(oldest, signal.SIGKILL)
            times.append(time.monotonic())
            killed.add(oldest)
    return times


def test_only_requests_in_flight_on_a_killed_replica_fail(serve_address: str, tmp_path: Path) -> None:
    from ray import serve

    expected = continued([ord("c")], NUM_TOKENS)
    variant = Variant(
        "only",
        ToyReplica("only", str(tmp_path), step_s=0.02),
        num_replicas=NUM_REPLICAS,
        ray_actor_options={"num_cpus": 0.1},
        health_check_period_s=1,
    )
    serve.run(build_application([variant], ServeOptions(ingress_cpus=0.1)), route_prefix="/")
    stopped = threading.Event()
    with (
        httpx.Client(base_url=serve_address, timeout=WAIT_S) as client,
        ThreadPoolExecutor(NUM_CLIENTS + 1) as pool,
    ):
        kills = pool.submit(kill_now_and_then, client, tmp_path, stopped)
        outcomes: list[Outcome] = []
        try:
            while len(outcomes) < NUM_REQUESTS or not kills.done():
                first = len(outcomes)
                time.sleep(0.1)  # the CPU is for the replicas that start
                batch = [pool.submit(ask, client, first + place) for place in range(NUM_CLIENTS)]
                outcomes += [one.result(WAIT_S) for one in batch]
        finally:
            stopped.set()
        times = kills.result(WAIT_S)
    failed = [one for one in outcomes if one.code is not None]
    print(f"{len(outcomes)} requests, {len(times)} kills, {len(failed)} failed, ", end="")
    print(f"longest {max(one.ended - one.began for one in outcomes):.1f} s")
    assert len(times) == NUM_KILLS
    assert failed, "no kill hit a request: the test says nothing"
    assert {one.code for one in failed} == {"replica_died"}
    for one in failed:
        assert any(one.began < when < one.ended for when in times), "it began after the kill"
    assert all(one.text == expected for one in outcomes if one.code is None)
