"""Which Ray cluster is meant, and whether it answers.

Ray by itself waits two minutes for a cluster that is gone, and then ends the process.
"""

from __future__ import annotations

import os
import re
import socket
from urllib.parse import urlsplit

from foredraft.scheduler.cluster.errors import ClusterError, NoClusterError
from foredraft.scheduler.cluster.ray_import import import_ray

CLIENT = "ray://"
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def checked_address(address: str) -> str:
    """``address``, if it is ``auto``, ``local``, host:port or ray://host:port.

    Raises:
        ClusterError: it is none of these.
    """
    if address in ("auto", "local"):
        return address
    host_and_port = address.removeprefix(CLIENT)
    written_well = re.fullmatch(r"[^/\s:]+:[0-9]{1,5}|\[[0-9a-fA-F:]+\]:[0-9]{1,5}", host_and_port)
    if written_well and _split(address)[1] > 0:
        return address
    raise ClusterError(f"address: should be auto, local, host:port or ray://host:port (got {address!r})")


def running_here() -> list[str]:
    """host:port of every Ray cluster that has a node on this machine."""
    import_ray()
    from ray._private.services import find_gcs_addresses  # what `ray status` goes by

    return sorted(find_gcs_addresses())  # type: ignore[no-untyped-call]


def only_one_running() -> str:
    """The cluster that ``auto`` means: that of RAY_ADDRESS, else the only one with a node on this machine.

    Raises:
        NoClusterError: there is none.
        ClusterError: there are several.
    """
    if named := os.environ.get("RAY_ADDRESS"):
        return checked_address(named)
    found = running_here()
    if not found:
        raise NoClusterError("address: auto, and no Ray runs on this machine")
    if len(found) > 1:
        raise ClusterError(
            f"address: auto, and {len(found)} Ray clusters run on this machine: {', '.join(found)}; name one"
        )
    return found[0]


def check_answers(address: str, deadline_s: float) -> None:
    """Whether a Ray head (or, with ray://, a Ray Client server) listens there.

    Raises:
        NoClusterError: nothing answers within the deadline.
        ClusterError: this machine is no node of that cluster.
    """
    import grpc
    from ray._private.grpc_utils import init_grpc_channel  # knows Ray's TLS and token settings

    channel = init_grpc_channel(address.removeprefix(CLIENT))
    try:
        grpc.channel_ready_future(channel).result(timeout=deadline_s)
    except grpc.FutureTimeoutError:
        raise NoClusterError(
            f"address: no Ray cluster answers at {address} within {deadline_s:g} s"
        ) from None
    finally:
        channel.close()
    if not address.startswith(CLIENT) and not any(_same(address, other) for other in running_here()):
        host, _ = _split(address)
        raise ClusterError(
            f"address: this machine is not a node of the cluster at {address}; "
            f"from outside use {CLIENT}{host}:10001 (Ray Client)"
        )


def _same(asked: str, found: str) -> bool:
    (asked_host, asked_port), (found_host, found_port) = _split(asked), _split(found)
    if asked_port != found_port:
        return False
    return asked_host in LOOPBACK or _resolved(asked_host) == _resolved(found_host)


def _split(address: str) -> tuple[str, int]:
    parts = urlsplit(f"//{address.removeprefix(CLIENT)}")
    try:
        return parts.hostname or "", parts.port or 0
    except ValueError:  # a port over 65535
        return parts.hostname or "", 0


def _resolved(host: str) -> str:
    try:
        return str(socket.getaddrinfo(host, None)[0][4][0])
    except OSError:
        return host
