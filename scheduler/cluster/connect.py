"""Connecting to a Ray cluster that runs, or starting one on this machine."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from foredraft.scheduler.cluster.address import CLIENT, check_answers, checked_address, only_one_running
from foredraft.scheduler.cluster.errors import ClusterError
from foredraft.scheduler.cluster.ray_import import import_ray


@dataclass(frozen=True)
class LocalCluster:
    """What a Ray started on this machine has; ``None`` = what Ray finds.

    Attributes:
        temp_dir: where it keeps its logs and sockets; ``None`` = Ray's default.
    """

    num_cpus: int | None = None
    num_gpus: int | None = None
    temp_dir: str | None = None


@dataclass(frozen=True)
class Connection(AbstractContextManager["Connection"]):
    """This process as a driver of one cluster.

    Attributes:
        address: host:port of the cluster's head, or ray://host:port.
        started: the cluster was started for this connection, and ends with it.
        shared: someone else in this process made the connection, and will end it.
    """

    address: str
    started: bool
    shared: bool = False

    def close(self) -> None:
        """Leave the cluster; one that was started here ends, with every process of it."""
        if not self.shared:
            import_ray().shutdown()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()


def connect(address: str, *, deadline_s: float = 20.0, local: LocalCluster | None = None) -> Connection:
    """Connect this process to a cluster.

    Args:
        address: ``local`` starts a cluster on this machine, whatever else runs there. ``auto`` takes
            RAY_ADDRESS, or the only cluster that has a node here. host:port is the head of a cluster that
            this machine is a node of; ray://host:port works from anywhere, through Ray Client.
        deadline_s: for an answer of a cluster that is said to run.

    Raises:
        NoClusterError: nothing answers.
        ClusterError: no such cluster, several for ``auto``, or this process is connected to another one.
    """
    asked = checked_address(address)
    ray = import_ray()
    if ray.is_initialized():
        return _present_connection(ray, asked)
    if asked == "local":
        return _start(ray, local or LocalCluster())
    named = only_one_running() if asked == "auto" else asked
    _use_own_token(named)
    check_answers(named, deadline_s)
    _init(ray, named, address=named)
    return Connection(named, started=False)


def _use_own_token(address: str) -> None:
    """A Ray that was started here asks for this user's token; Ray sends it only where it searched itself.

    Not over Ray Client: a cluster elsewhere gets no token unless RAY_AUTH_MODE says so.
    """
    if not address.startswith(CLIENT):
        from ray._private.authentication import authentication_token_setup

        authentication_token_setup.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)


def _present_connection(ray: Any, asked: str) -> Connection:
    if ray.util.client.ray.is_connected():
        present = f"{CLIENT}..."
        same = asked == "auto" or asked.startswith(CLIENT)
    else:
        present = ray.get_runtime_context().gcs_address
        same = asked in ("auto", present)
    if not same:
        raise ClusterError(
            f"address: {asked}, and this process is connected to the Ray cluster {present} already; "
            "use auto for that one, or leave it first with ray.shutdown()"
        )
    return Connection(present, started=False, shared=True)


def _start(ray: Any, local: LocalCluster) -> Connection:
    _init(
        ray,
        "local",
        address="local",
        num_cpus=local.num_cpus,
        num_gpus=local.num_gpus,
        include_dashboard=False,
        _temp_dir=local.temp_dir,
    )
    return Connection(ray.get_runtime_context().gcs_address, started=True)


def _init(ray: Any, named: str, **options: Any) -> None:
    """``ray.init``, its failures on one line. Ray ends the process where a cluster goes away meanwhile."""
    try:
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
    except (Exception, SystemExit) as error:
        ray.shutdown()
        first = str(error).strip().partition("\n")[0]
        raise ClusterError(f"address: cannot connect to Ray at {named}: {first}") from error
