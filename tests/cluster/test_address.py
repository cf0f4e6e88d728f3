"""Which cluster is meant: never another one than was named, and no waiting for one that is gone."""

from __future__ import annotations

import socket
import time

import pytest

from foredraft.scheduler.cluster import address as addresses
from foredraft.scheduler.cluster.address import check_answers, checked_address, only_one_running
from foredraft.scheduler.cluster.connect import connect
from foredraft.scheduler.cluster.errors import ClusterError


@pytest.mark.parametrize(
    "address", ["auto", "local", "head:6379", "10.0.0.1:6379", "[::1]:6379", "ray://h:10001"]
)
def test_addresses_that_can_be(address: str) -> None:
    assert checked_address(address) == address


@pytest.mark.parametrize(
    "address", ["", "head", "head:", "head:0", "head:70000", "ftp://h:1", "ray://h", "h:1/x"]
)
def test_addresses_that_cannot_be(address: str) -> None:
    with pytest.raises(ClusterError, match="should be auto, local, host:port or ray://host:port"):
        checked_address(address)


def test_auto_is_never_a_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(addresses, "running_here", lambda: ["a:1", "b:2"])
    with pytest.raises(ClusterError, match=r"2 Ray clusters run on this machine: a:1, b:2; name one"):
        only_one_running()
    monkeypatch.setattr(addresses, "running_here", list)
    with pytest.raises(ClusterError, match="auto, and no Ray runs on this machine"):
        only_one_running()
    monkeypatch.setenv("RAY_ADDRESS", "c:3")
    assert only_one_running() == "c:3"


@pytest.mark.parametrize("kind", ["", "ray://"])
def test_a_cluster_that_is_gone_is_known_within_the_deadline(kind: str) -> None:
    """Ray itself waits two minutes, and then ends the process."""
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        started = time.monotonic()
        with pytest.raises(ClusterError, match="no Ray cluster answers"):
            connect(f"{kind}127.0.0.1:{taken.getsockname()[1]}", deadline_s=1)
    assert time.monotonic() - started < 60


def test_something_else_that_listens_is_no_cluster() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(ClusterError, match="no Ray cluster"):
        check_answers(f"127.0.0.1:{other.getsockname()[1]}", 1)
