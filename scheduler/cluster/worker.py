"""What the supervisor is told of a worker, and how its actor is started."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from foredraft.scheduler.cluster.errors import ClusterError
from foredraft.scheduler.cluster.ray_import import import_ray
from foredraft.scheduler.cluster.resources import bundle_resources
from foredraft.scheduler.placement.plan import Role, WorkerPlan

State = Literal["starting", "running", "waiting", "failed", "draining", "stopped"]
"""``waiting``: for its next restart. ``failed``: given up."""


class Worker(Protocol):
    """What an actor offers to be supervised. Its methods may be plain ones too."""

    async def check(self, timeout_s: float) -> Any:
        """Do a little of the real work, such as generate one token, and say how things are.

        Raises:
            Exception: the worker cannot do its work, or not in time.
        """

    async def drain(self, timeout_s: float) -> bool:
        """Take no new work and wait for the present work; whether it was done in time."""


@dataclass(frozen=True)
class WorkerSpec:
    """One worker of a deployment.

    Attributes:
        name: of its actor, and of its placement group.
        actor_class: import path ``module:Class`` of a ``Worker``; a class is taken too.
        arguments: of its constructor, by name; they travel by pickle.
        plan: what it takes of its placement group.
        max_concurrency: calls that run at once. A check must not wait behind the work.
    """

    name: str
    role: Role
    actor_class: str | type
    plan: WorkerPlan
    arguments: Mapping[str, Any] = field(default_factory=dict)
    max_concurrency: int = 16


@dataclass(frozen=True)
class WorkerReport:
    """How a worker is.

    Attributes:
        restarts: since the deployment started.
        last_fault: why it was last restarted or given up.
        well_for_s: since its first good check, ``None`` while it is not running.
        details: what its last check answered.
    """

    name: str
    role: Role
    state: State
    restarts: int = 0
    last_fault: str | None = None
    well_for_s: float | None = None
    details: Any = None


def start_actor(spec: WorkerSpec, group: Any, namespace: str, *, detached: bool) -> Any:
    """The handle of a new actor on the first bundle of its group. It may be pending still.

    Ray does not restart it: that knows nothing of workers that hang, of waiting and of draining. The
    supervisor does.

    Raises:
        ClusterError: its class cannot be imported, or its name is taken.
    """
    ray = import_ray()
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    wanted = bundle_resources(spec.plan.bundles[0])
    actor_class = ray.remote(_resolved(spec.actor_class))
    try:
        return actor_class.options(
            name=spec.name,
            namespace=namespace,
            lifetime="detached" if detached else None,
            max_restarts=0,
            max_task_retries=0,
            max_concurrency=spec.max_concurrency,
            num_gpus=wanted.get("GPU", 0),
            num_cpus=wanted.get("CPU", 0),
            memory=wanted.get("memory"),
            scheduling_strategy=PlacementGroupSchedulingStrategy(
                group, placement_group_bundle_index=0, placement_group_capture_child_tasks=True
            ),
        ).remote(**spec.arguments)
    except ValueError as error:
        raise ClusterError(f"{spec.name}: {error}") from None


def find_actor(name: str, namespace: str) -> Any | None:
    """The handle of a named actor, ``None`` if there is none (any more)."""
    try:
        return import_ray().get_actor(name, namespace=namespace)
    except ValueError:
        return None


def _resolved(actor_class: str | type) -> type:
    if not isinstance(actor_class, str):
        return actor_class
    module, _, name = actor_class.partition(":")
    try:
        found: type = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ClusterError(f"actor class {actor_class!r}: cannot be imported: {error}") from None
    return found
