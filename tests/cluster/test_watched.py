"""The life of a supervised worker, over a worker that is told when to fail. No Ray."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from foredraft.scheduler.cluster.backoff import RestartPolicy
from foredraft.scheduler.cluster.watched import WatchedWorker

QUICK = RestartPolicy(
    check_every_s=0.001, check_deadline_s=1, first_wait_s=0.001, longest_wait_s=0.002, max_restarts=3
)


class ScriptedHost:
    """Its n-th check does what ``script`` says: answers, or fails with a message. Afterwards all are good."""

    def __init__(self, *script: str) -> None:
        self.script = list(script)
        self.calls: list[str] = []
        self.finishes = True

    async def start(self) -> None:
        self.calls.append("start")

    async def check(self, deadline_s: float) -> str:
        word = self.script.pop(0) if self.script else "well"
        if word != "well":
            raise RuntimeError(word)
        return word

    async def drain(self, deadline_s: float) -> bool:
        self.calls.append("drain")
        return self.finishes

    async def kill(self) -> None:
        self.calls.append("kill")


def run(
    host: ScriptedHost, until: Callable[[WatchedWorker], bool], policy: RestartPolicy = QUICK
) -> WatchedWorker:
    worker = WatchedWorker("w", "draft", host, policy)

    async def watch() -> None:
        task = asyncio.create_task(worker.run())
        async with asyncio.timeout(10):
            while not until(worker):
                await asyncio.sleep(0.001)
        task.cancel()

    asyncio.run(watch())
    return worker


def test_a_fault_kills_and_starts_again() -> None:
    host = ScriptedHost("well", "well", "it hangs")
    worker = run(host, lambda worker: worker.report().restarts == 1 and worker.report().state == "running")
    assert host.calls == ["start", "kill", "start"]
    assert worker.report().last_fault == "it hangs"
    assert worker.report().details == "well"


def test_a_worker_that_never_comes_up_is_given_up() -> None:
    host = ScriptedHost(*["broken"] * 99)
    worker = run(host, lambda worker: worker.report().state == "failed")
    assert host.calls == ["start", "kill"] * 4
    assert (worker.report().restarts, worker.report().well_for_s) == (3, None)


def test_a_fault_while_ending_it_does_not_end_the_watching() -> None:
    class Stubborn(ScriptedHost):
        async def kill(self) -> None:
            await super().kill()
            raise ConnectionError("the head does not answer")

    host = Stubborn("well", "it hangs")
    worker = run(host, lambda worker: worker.report().restarts == 1 and worker.report().state == "running")
    assert host.calls == ["start", "kill", "start"]
    assert worker.report().last_fault == "it hangs"


def test_stopping_drains_first_and_says_whether_it_was_done() -> None:
    for finishes in (True, False):
        host = ScriptedHost()
        host.finishes = finishes
        worker = run(host, lambda worker: worker.report().state == "running")
        assert asyncio.run(worker.stop(1.0)) is finishes
        assert host.calls[-2:] == ["drain", "kill"]
        assert worker.report().state == "stopped"


def test_a_worker_that_does_not_run_is_ended_without_draining() -> None:
    host = ScriptedHost(*["broken"] * 99)
    worker = run(host, lambda worker: worker.report().state == "failed")
    assert asyncio.run(worker.stop(1.0))
    assert "drain" not in host.calls
