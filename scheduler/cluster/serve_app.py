"""An application of Ray Serve: run within a deadline, looked at, removed."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from foredraft.scheduler.cluster.errors import ClusterError
from foredraft.scheduler.cluster.nodes import on_head

POLL_S = 0.25
DELETION_DEADLINE_S = 120.0
PROXIES: dict[str, str] = {"head": "HeadOnly", "every-node": "EveryNode"}


@dataclass(frozen=True)
class ServeAddress:
    """Where Serve listens. One cluster has one such address for all applications.

    Attributes:
        proxies: on the head alone, or on every node that has replicas.
    """

    host: str
    port: int
    route_prefix: str
    proxies: Literal["head", "every-node"] = "head"


@dataclass(frozen=True)
class ApplicationState:
    """Serve's word on an application.

    Attributes:
        message: of the application and of its deployments.
        replicas: of each deployment, how many run and how many are wanted.
    """

    status: str
    message: str
    replicas: dict[str, tuple[int, int]]


def check_address_free(name: str, address: ServeAddress) -> None:
    """Raises ``ClusterError`` if the port is taken, or Serve has another, or the name or the prefix."""
    from ray import serve
    from ray.serve.context import _get_global_client

    client = _get_global_client(raise_if_no_controller_running=False)
    if client is None:
        if fault := on_head(why_not_bound, address.host, address.port):
            raise ClusterError(f"server: cannot listen at {address.host}:{address.port}: {fault}")
        return
    there = client.http_config
    if (there.host, there.port) != (address.host, address.port):
        raise ClusterError(
            f"server: Ray Serve listens at {there.host}:{there.port} on this cluster already, so it cannot "
            f"listen at {address.host}:{address.port} too; say the same host and port, and another "
            "route_prefix, or take down what runs there"
        )
    if name in serve.status().applications:
        raise ClusterError(f"name: Ray Serve of this cluster runs an application {name!r} already")
    for other, details in client.get_serve_details()["applications"].items():
        if details["route_prefix"] == address.route_prefix:
            raise ClusterError(f"server.route_prefix: {address.route_prefix} is that of {other!r} already")


def why_not_bound(host: str, port: int) -> str | None:
    """What keeps this machine from listening there; ``None`` = nothing.

    Ray's proxies set SO_REUSEPORT, and would share the port with another Ray's, each getting some requests.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as listener:
            # Connections that were closed a moment ago are not in the way.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
    except OSError as error:
        return error.strerror
    return None


def run_application(
    application: Any,
    name: str,
    address: ServeAddress,
    deadline_s: float,
    progress: Callable[[str], None] = lambda line: None,
) -> None:
    """Run it and wait until all its replicas do.

    Raises:
        ClusterError: it failed, or is not there at the deadline. It is left for ``delete_application``.
    """
    from ray import serve

    http = {"host": address.host, "port": address.port}
    serve.start(proxy_location=PROXIES[address.proxies], http_options=http)
    serve.run_many(
        [serve.RunTarget(target=application, name=name, route_prefix=address.route_prefix)],
        wait_for_ingress_deployment_creation=False,
        wait_for_applications_running=False,
    )
    ends = time.monotonic() + deadline_s
    shown = ""
    while (state := application_state(name)) is None or state.status != "RUNNING":
        if state is not None and state.status == "DEPLOY_FAILED":
            raise ClusterError(f"replicas did not start: {_reason(state.message)}")
        if state is not None and (now := replica_counts(state)) != shown:
            shown = now
            progress(shown)
        if time.monotonic() > ends:
            raise ClusterError(f"not running after {deadline_s:g} s: {shown or 'nothing started'}")
        time.sleep(POLL_S)
    if (now := replica_counts(state)) != shown:
        progress(now)


def application_state(name: str) -> ApplicationState | None:
    """How it is; ``None`` if there is none of this name, or no Serve."""
    from ray import serve

    found = serve.status().applications.get(name)
    if found is None:
        return None
    replicas = {one: _counts(deployment.replica_states) for one, deployment in found.deployments.items()}
    messages = [found.message, *(deployment.message for deployment in found.deployments.values())]
    return ApplicationState(str(found.status.value), "\n".join(messages), replicas)


def delete_application(name: str) -> bool:
    """Let it finish its requests and remove it; the last one takes Serve with it. Whether there was one.

    Raises:
        ClusterError: it is still there after some time.
    """
    from ray import serve

    there = application_state(name) is not None
    if there:
        serve.delete(name, _blocking=False)
    ends = time.monotonic() + DELETION_DEADLINE_S
    while application_state(name) is not None:
        if time.monotonic() > ends:
            raise ClusterError(f"application {name!r} is still there after {DELETION_DEADLINE_S:g} s")
        time.sleep(POLL_S)
    if not serve.status().applications:
        serve.shutdown()
    return there


def replica_counts(state: ApplicationState) -> str:
    """For people: "replicas: ingress 1 of 1, default 0 of 2"."""
    each = [f"{name} {running} of {wanted}" for name, (running, wanted) in state.replicas.items()]
    return f"replicas: {', '.join(each)}" if each else "replicas: none yet"


def _counts(states: dict[Any, int]) -> tuple[int, int]:
    named = {getattr(state, "value", state): count for state, count in states.items()}
    return named.get("RUNNING", 0), sum(count for name, count in named.items() if name != "STOPPING")


def _reason(message: str) -> str:
    """The line of Serve's messages that says what went wrong: the last that is an error with its text."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    named = [line for line in lines if re.search(r"(Error|Exception): .", line)]
    return (named or lines or ["Ray Serve does not say why"])[-1]
