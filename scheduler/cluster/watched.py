"""The life of one supervised worker: started, checked, started again, given up. No Ray here."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, Protocol

from foredraft.scheduler.cluster.backoff import Backoff, RestartPolicy
from foredraft.scheduler.cluster.worker import State, WorkerReport
from foredraft.scheduler.placement.plan import Role

logger = logging.getLogger(__name__)


class Host(Protocol):
    """What runs a worker. There is one at a time."""

    async def start(self) -> None:
        """Start the worker. It may still be on its way when this returns."""

    async def check(self, deadline_s: float) -> Any:
        """Ask the worker to do a little of its work.

        Raises:
            Exception: it cannot, is dead, or did not answer within the deadline; the message says which.
        """

    async def drain(self, deadline_s: float) -> bool:
        """Let the worker finish; whether it did in time."""

    async def kill(self) -> None:
        """End the worker, wherever it is in its life. Nothing to end is no error."""


class WatchedWorker:
    """Keeps one worker running, as long as that is possible."""

    def __init__(self, name: str, role: Role, host: Host, policy: RestartPolicy) -> None:
        self.name, self._role = name, role
        self._host, self._policy = host, policy
        self._backoff = Backoff(policy)
        self._state: State = "starting"
        self._restarts = 0
        self._last_fault: str | None = None
        self._well_since: float | None = None
        self._details: Any = None

    def report(self) -> WorkerReport:
        """How it is now."""
        return WorkerReport(
            self.name,
            self._role,
            self._state,
            self._restarts,
            self._last_fault,
            None if self._well_since is None else time.monotonic() - self._well_since,
            self._details,
        )

    async def run(self) -> None:
        """Until cancelled, or given up."""
        while True:
            well_for_s = await self._run_once()
            wait = self._backoff.wait_before_restart(well_for_s)
            if wait is None:
                self._state = "failed"
                logger.error("%s: given up after %d restarts", self.name, self._restarts)
                return
            self._state = "waiting"
            await asyncio.sleep(wait)
            self._restarts += 1

    async def stop(self, deadline_s: float) -> bool:
        """No new work, wait for the present work, then end; whether that was done in time.

        ``run`` must have been cancelled.
        """
        finished = True
        if self._state == "running":
            self._state = "draining"
            try:
                finished = await self._host.drain(deadline_s)
            except Exception as fault:
                finished = False
                logger.warning("%s: ended without draining: %s", self.name, one_line(fault))
        await self._host.kill()
        self._state, self._well_since = "stopped", None
        return finished

    async def _run_once(self) -> float:
        """From a start to a fault; returns how long it was well between."""
        self._state = "starting"
        try:
            await self._host.start()
            self._details = await self._host.check(self._policy.start_deadline_s)
            self._state, self._well_since = "running", time.monotonic()
            while True:
                await asyncio.sleep(self._policy.check_every_s)
                self._details = await self._host.check(self._policy.check_deadline_s)
        except Exception as fault:
            self._last_fault = one_line(fault)
            logger.warning("%s: %s", self.name, self._last_fault)
        well_since, self._well_since = self._well_since, None
        self._state = "waiting"
        try:
            await self._host.kill()
        except Exception as fault:  # the next start finds what lives still
            logger.warning("%s: cannot be ended: %s", self.name, one_line(fault))
        return 0.0 if well_since is None else time.monotonic() - well_since


def one_line(error: BaseException) -> str:
    """An error for a report. Ray's are long: of those the last line, which is the worker's own error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
