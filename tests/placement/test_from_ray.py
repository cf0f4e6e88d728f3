"""What a real Ray cluster of pretended GPUs offers, as the planner sees it."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from placement_cases import need
from typer.testing import CliRunner

from foredraft.integration.cli import app
from foredraft.scheduler.hardware_model.hardware import GPUS
from foredraft.scheduler.placement.errors import PlacementError
from foredraft.scheduler.placement.from_ray import KIND_LABEL, MEMORY_LABEL, cluster_from_ray
from foredraft.scheduler.placement.models import GIB, Request
from foredraft.scheduler.placement.planner import make_plan

pytestmark = pytest.mark.ray

NODES: list[dict[str, Any]] = [
    {"num_gpus": 4, "num_cpus": 2, "memory": 3 * GIB + 5, "labels": {"pool": "head"}},
    {"num_gpus": 2, "num_cpus": 6, "memory": 16 * GIB, "resources": {"accelerator_type:H100": 1}},
    {"num_gpus": 1, "num_cpus": 4, "memory": 8 * GIB, "labels": {KIND_LABEL: "l4", MEMORY_LABEL: "22.5"}},
]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """host:port of a cluster of three nodes; this process is connected to it."""
    import ray
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="ray") as folder:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.delenv("RAY_ADDRESS", raising=False)
        head = NODES[0] | {"include_dashboard": False, "temp_dir": folder}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            for one in NODES[1:]:
                cluster.add_node(**one)
            ray.init(address=cluster.address, log_to_driver=False)
            yield cluster.address
        finally:
            ray.shutdown()
            cluster.shutdown()


@pytest.mark.usefixtures("address")
def test_nodes_as_ray_knows_them() -> None:
    found = {node.cpus: node for node in cluster_from_ray().nodes}
    by_gpus = {node.gpus: node for node in cluster_from_ray().nodes if node.gpus}
    assert set(found) == {2, 4, 6}
    assert found[2].memory_bytes == 3 * GIB
    assert found[2].labels["pool"] == "head"
    assert by_gpus[2].gpu == GPUS["h100"]
    assert by_gpus[1].gpu is not None
    assert by_gpus[1].gpu.memory == 22.5e9
    assert by_gpus[1].gpu.bandwidth == GPUS["l4"].bandwidth
    assert len(found[2].name) == 56  # Ray's id


@pytest.mark.usefixtures("address")
def test_gpus_of_no_known_kind_are_left_out_and_named() -> None:
    cluster = cluster_from_ray()
    assert cluster.num_gpus == 3
    (note,) = cluster.notes
    assert note.startswith("left out: 4 GPUs of an unknown kind on ")
    assert KIND_LABEL in note
    with pytest.raises(PlacementError, match="left out: 4 GPUs"):
        make_plan(cluster, Request(need("qwen2.5-0.5b"), None, "ngram", num_replicas=4))


@pytest.mark.usefixtures("address")
def test_what_others_hold_is_not_planned_with() -> None:
    import ray

    on_its_node = [{"ray.io/node-id": _node_with(2).name}]
    group = ray.util.placement_group([{"GPU": 1, "CPU": 1}], bundle_label_selector=on_its_node)
    assert group.wait(30)
    try:
        assert sorted((node.gpus, node.cpus) for node in cluster_from_ray().nodes) == [(0, 2), (1, 4), (1, 5)]
    finally:
        ray.util.remove_placement_group(group)
    _wait_until(lambda: cluster_from_ray().num_gpus == 3)


def test_the_command_reads_the_running_cluster(address: str) -> None:
    arguments = ["plan", "--cluster", "auto", "--address", address, "--target", "llama-3.1-8b", "--json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    (bundle,) = json.loads(result.stdout)["replicas"][0]["target"]["bundles"]
    assert bundle["node"] == _node_with(2).name


def _wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end, "Ray did not take the bundle back"
        time.sleep(0.1)


def _node_with(gpus: int) -> Any:
    (found,) = (node for node in cluster_from_ray().nodes if node.gpus == gpus)
    return found
