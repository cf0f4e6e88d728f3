"""A start beside another one of the same name, and without a cluster. No Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from foredraft.integration.cli import app
from foredraft.integration.deploy import start as starting
from foredraft.integration.deploy.command_deploy import deploy
from foredraft.integration.deploy.schema import load_deployment
from foredraft.integration.errors import UserError
from foredraft.scheduler.cluster import address as addresses
from foredraft.scheduler.cluster.errors import ClusterError, NameTakenError
from foredraft.scheduler.placement.shape import Cluster, Node

FILE = """
name: toy
variants: [{name: plain, config: {model: smollm2-135m, proposer: none, device: cpu}}]
"""


@pytest.mark.parametrize(
    ("fault", "removed"), [(NameTakenError("name: toy"), []), (ClusterError("x"), ["toy"])]
)
def test_who_comes_second_removes_nothing(
    fault: Exception, removed: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def start_deployment(*arguments: Any, **more: Any) -> None:
        raise fault

    path, taken_down = tmp_path / "toy.yaml", list[str]()
    path.write_text(FILE)
    monkeypatch.setattr(starting, "_check_free", lambda name, address: None)
    monkeypatch.setattr(starting, "alive_nodes", list)
    monkeypatch.setattr(
        starting, "cluster_from_ray", lambda: Cluster((Node("a", 0, None, cpus=8, memory_bytes=2**35),))
    )
    monkeypatch.setattr(starting, "start_deployment", start_deployment)
    monkeypatch.setattr(starting, "take_down", lambda name, drain_s: taken_down.append(name))
    with pytest.raises(type(fault)):
        starting.start(load_deployment(path), lambda line: None)
    assert taken_down == removed


def test_without_a_cluster_only_deploy_says_how_to_start_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "toy.yaml"
    path.write_text(FILE + "cluster: {address: auto}")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("FOREDRAFT_STATE", str(tmp_path))
    monkeypatch.setattr(addresses, "running_here", list)
    none = "address: auto, and no Ray runs on this machine"
    with pytest.raises(UserError, match=f"cluster.{none}; address: local starts one"):
        deploy(path)
    assert CliRunner().invoke(app, ["down"]).stdout == f"deployments: nothing to remove: {none}\n"
