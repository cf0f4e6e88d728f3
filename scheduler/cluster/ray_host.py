"""A worker as an actor on its placement group."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from foredraft.scheduler.cluster.errors import ClusterError
from foredraft.scheduler.cluster.groups import group_state
from foredraft.scheduler.cluster.ray_import import import_ray
from foredraft.scheduler.cluster.worker import WorkerSpec, find_actor, start_actor

NAME_FREE_DEADLINE_S = 30.0
POLL_S = 0.05


class RayHost:
    """Runs one worker for the supervisor. Only awaited from one task at a time."""

    def __init__(self, spec: WorkerSpec, group: Any, namespace: str, *, detached: bool) -> None:
        self._spec, self._group, self._namespace, self._detached = spec, group, namespace, detached
        self._actor: Any | None = None

    async def start(self) -> None:
        """A new actor, or the one of this name that lives already: the supervisor may have been restarted."""
        self._actor = find_actor(self._spec.name, self._namespace)
        if self._actor is None:
            self._actor = start_actor(self._spec, self._group, self._namespace, detached=self._detached)

    async def check(self, deadline_s: float) -> Any:
        """See ``Host.check``."""
        try:
            return await asyncio.wait_for(self._asked("check", deadline_s), deadline_s)
        except TimeoutError:
            state = group_state(self._group)
            where = "" if state == "CREATED" else f"; its placement group is {state}: a node may be gone"
            raise ClusterError(f"no answer within {deadline_s:g} s{where}") from None
        except import_ray().exceptions.ActorDiedError as error:
            raise ClusterError(f"its process died: {_cause(error)}") from None

    async def drain(self, deadline_s: float) -> bool:
        """See ``Host.drain``."""
        finished: bool = await asyncio.wait_for(self._asked("drain", deadline_s), deadline_s + 5.0)
        return finished

    async def kill(self) -> None:
        """End the actor, pending or not, and wait until its name is free again."""
        if self._actor is None:
            return
        import_ray().kill(self._actor, no_restart=True)
        self._actor = None
        ends = time.monotonic() + NAME_FREE_DEADLINE_S
        while find_actor(self._spec.name, self._namespace) is not None and time.monotonic() < ends:
            await asyncio.sleep(POLL_S)

    async def _asked(self, method: str, *arguments: Any) -> Any:
        assert self._actor is not None, "start comes first"
        return await getattr(self._actor, method).remote(*arguments)


def _cause(error: Exception) -> str:
    """What Ray knows of a death: the constructor's error, or how the process ended."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    for line in lines:
        if "Worker exit detail:" in line:
            # What follows the first sentence is advice for every case.
            return line.partition("Worker exit detail:")[2].strip().partition(". Some common causes")[0]
    return lines[-1] if lines else type(error).__name__
