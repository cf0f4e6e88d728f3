"""A deployment: workers under one name, with their supervisor; started whole, removed whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from foredraft.scheduler.cluster.backoff import RestartPolicy
from foredraft.scheduler.cluster.errors import ClusterError, NameTakenError
from foredraft.scheduler.cluster.groups import reserve
from foredraft.scheduler.cluster.names import SUPERVISOR, checked_name, namespace_of
from foredraft.scheduler.cluster.ray_import import import_ray
from foredraft.scheduler.cluster.removal import Removed, remove_deployment
from foredraft.scheduler.cluster.supervisor import Supervisor
from foredraft.scheduler.cluster.worker import WorkerReport, WorkerSpec, find_actor

POLL_S = 0.2
CALL_DEADLINE_S = 30.0
SUPERVISOR_CONCURRENCY = 1000


@dataclass(frozen=True)
class StartOptions:
    """How a deployment is started.

    Attributes:
        group_deadline_s: for its placement groups.
        worker_deadline_s: until every worker runs.
        detached: it outlives this process; else it ends with it.
        nodes_may_join: see ``groups.reserve``.
        drain_s: at its end, for work that is under way.
    """

    group_deadline_s: float = 60.0
    worker_deadline_s: float = 300.0
    detached: bool = False
    nodes_may_join: bool = False
    drain_s: float = 30.0
    policy: RestartPolicy = field(default_factory=RestartPolicy)


@dataclass(frozen=True)
class Deployment(AbstractContextManager["Deployment"]):
    """A deployment that runs. As a context manager it is removed at the end.

    Attributes:
        supervisor: the handle of its supervisor; a deployment that is not detached lives as long as this.
    """

    name: str
    supervisor: Any
    drain_s: float = 30.0

    @property
    def namespace(self) -> str:
        """Ray's namespace of its actors."""
        return namespace_of(self.name)

    def worker(self, name: str) -> Any:
        """The handle of one of its workers.

        Raises:
            ClusterError: it does not run now.
        """
        actor = find_actor(name, self.namespace)
        if actor is None:
            raise ClusterError(f"{name}: does not run")
        return actor

    def reports(self) -> list[WorkerReport]:
        """How each worker is.

        Raises:
            ClusterError: the deployment is gone, or does not answer.
        """
        reports: list[WorkerReport] = self._ask("report")
        return reports

    def about(self) -> dict[str, Any]:
        """What was said of it when it was started. Raises ``ClusterError`` like ``reports``."""
        about: dict[str, Any] = self._ask("about")
        return about

    def begin(self) -> None:
        """Start its workers, whose room is reserved. Raises ``ClusterError`` like ``reports``."""
        self._ask("begin")

    def remove(self) -> Removed:
        """End everything of it. A second time there is nothing left to do."""
        return remove_deployment(self.name, self.drain_s)

    def _ask(self, method: str) -> Any:
        ray = import_ray()
        try:
            return ray.get(getattr(self.supervisor, method).remote(), timeout=CALL_DEADLINE_S)
        except ray.exceptions.RayError as error:
            raise ClusterError(
                f"{self.name}: its supervisor does not answer: {type(error).__name__}"
            ) from error

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove."""
        self.remove()


def start_deployment(
    name: str,
    specs: Sequence[WorkerSpec],
    options: StartOptions,
    *,
    about: Mapping[str, Any] | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> Deployment:
    """Start workers and their supervisor; returns when every worker has passed its first check.

    Raises:
        NameTakenError: the deployment that runs is left alone.
        ClusterError: there is no room, or a worker does not start; nothing stays behind.
    """
    checked_name(name)
    try:
        supervisor = _start_supervisor(name, specs, options, about or {})
        deployment = Deployment(name, supervisor, options.drain_s)
        if specs:
            progress(f"reserving room for {', '.join(spec.name for spec in specs)}")
        plans = {spec.name: spec.plan for spec in specs}
        reserve(
            name,
            plans,
            deadline_s=options.group_deadline_s,
            detached=options.detached,
            nodes_may_join=options.nodes_may_join,
        )
        deployment.begin()
        _wait_until_running(deployment, options.worker_deadline_s, progress)
    except NameTakenError:
        raise
    except BaseException:
        remove_deployment(name, drain_s=0)
        raise
    return deployment


def deployment_exists(name: str) -> bool:
    """Whether a deployment of this name runs, or is being started or removed."""
    return find_actor(SUPERVISOR, namespace_of(name)) is not None


def find_deployment(name: str, drain_s: float = 30.0) -> Deployment:
    """The deployment of this name, whoever started it.

    Raises:
        ClusterError: there is none.
    """
    supervisor = find_actor(SUPERVISOR, namespace_of(checked_name(name)))
    if supervisor is None:
        raise ClusterError(f"name: no deployment {name!r} runs on this cluster")
    return Deployment(name, supervisor, drain_s)


def _start_supervisor(
    name: str,
    specs: Sequence[WorkerSpec],
    options: StartOptions,
    about: Mapping[str, Any],
) -> Any:
    actor_class = import_ray().remote(Supervisor)
    try:
        supervisor = actor_class.options(
            name=SUPERVISOR,
            namespace=namespace_of(name),
            lifetime="detached" if options.detached else None,
            num_cpus=0,
            max_restarts=-1,
            max_concurrency=SUPERVISOR_CONCURRENCY,
        ).remote(name, list(specs), options.policy, detached=options.detached, about=dict(about))
        supervisor.about.remote()  # over Ray Client only the first call says that the name is taken
    except ValueError:
        raise NameTakenError(f"name: a deployment {name!r} runs on this cluster already") from None
    return supervisor


def _wait_until_running(deployment: Deployment, deadline_s: float, progress: Callable[[str], None]) -> None:
    ends = time.monotonic() + deadline_s
    seen: set[str] = set()
    while True:
        reports = deployment.reports()
        for report in reports:
            if report.state == "running" and report.name not in seen:
                seen.add(report.name)
                progress(f"{report.name} runs ({len(seen)} of {len(reports)})")
            if report.last_fault and report.state in ("waiting", "failed"):
                raise ClusterError(f"{report.name}: did not start: {report.last_fault}")
        if len(seen) == len(reports):
            return
        if time.monotonic() > ends:
            late = ", ".join(report.name for report in reports if report.name not in seen)
            raise ClusterError(f"not running after {deadline_s:g} s: {late}")
        time.sleep(POLL_S)
