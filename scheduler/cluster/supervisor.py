"""The actor that keeps the workers of a deployment running."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from foredraft.scheduler.cluster.backoff import RestartPolicy
from foredraft.scheduler.cluster.groups import groups_of
from foredraft.scheduler.cluster.names import group_name, namespace_of
from foredraft.scheduler.cluster.ray_host import RayHost
from foredraft.scheduler.cluster.watched import WatchedWorker
from foredraft.scheduler.cluster.worker import WorkerReport, WorkerSpec


class Supervisor:
    """Restarts of workers are ours alone: Ray restarts none of them.

    Ray restarts the supervisor itself, which nobody else watches; it takes over the workers that live.

    It comes before the placement groups of its workers: who has it has the name of the deployment, and so
    everything that bears it.

    Args:
        about: what ``foredraft status`` shows of the deployment.
    """

    async def __init__(  # type: ignore[misc]  # Ray awaits it
        self,
        deployment: str,
        specs: Sequence[WorkerSpec],
        policy: RestartPolicy,
        *,
        detached: bool,
        about: Mapping[str, Any],
    ) -> None:
        self._deployment, self._specs, self._policy, self._detached = deployment, specs, policy, detached
        self._about = dict(about)
        self._workers: list[WatchedWorker] = []
        self._tasks: list[asyncio.Task[None]] = []
        if self._groups().keys() >= {spec.name for spec in specs}:  # restarted by Ray
            await self.begin()

    async def begin(self) -> None:
        """Start the workers, whose placement groups are there. A second time does nothing."""
        if self._workers:
            return
        groups, namespace = self._groups(), namespace_of(self._deployment)
        for spec in self._specs:
            host = RayHost(spec, groups[spec.name], namespace, detached=self._detached)
            self._workers.append(WatchedWorker(spec.name, spec.role, host, self._policy))
        self._tasks = [asyncio.create_task(worker.run()) for worker in self._workers]

    def _groups(self) -> dict[str, Any]:
        """The placement groups that are there, by worker."""
        found = groups_of(self._deployment)
        named = {spec.name: group_name(self._deployment, spec.name) for spec in self._specs}
        return {worker: found[name] for worker, name in named.items() if name in found}

    async def about(self) -> dict[str, Any]:
        """What the deployment is."""
        return self._about

    async def report(self) -> list[WorkerReport]:
        """How each worker is now."""
        return [worker.report() for worker in self._workers]

    async def drain(self, deadline_s: float) -> list[str]:
        """End all workers, each after its present work; returns the names of those that were not done."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        finished = await asyncio.gather(*(worker.stop(deadline_s) for worker in self._workers))
        return [worker.name for worker, done in zip(self._workers, finished, strict=True) if not done]
