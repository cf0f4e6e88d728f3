"""Two pretend nodes: a draft on another one than its target, and one that goes while a group is pending."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from ray_checks import wait_until
from ray_workers import gpu_bundle, worker_plan

from foredraft.scheduler.cluster import ClusterError, connect, deployments
from foredraft.scheduler.cluster.groups import groups_of, remove_groups, reserve

pytestmark = pytest.mark.ray

NODE_A = worker_plan(gpu_bundle(1, node_labels=(("place", "a"),)))
NODE_B = worker_plan(gpu_bundle(1, node_labels=(("place", "b"),)))


@pytest.fixture(scope="module")
def two_nodes(ray_environment: None) -> Iterator[Any]:
    """The head has a GPU, and so has node b; both are called by a label."""
    from ray._private.authentication import authentication_token_setup
    from ray.cluster_utils import Cluster

    # As `ray start` does; else nodes that join later ask for a token that the head does not send.
    authentication_token_setup.enable_token_auth_by_default()
    authentication_token_setup.ensure_token_if_auth_enabled()
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "num_gpus": 1, "labels": {"place": "a"}, "include_dashboard": False},
    )
    try:
        with connect(cluster.address):
            yield cluster
    finally:
        cluster.shutdown()


def nodes_of(group: Any) -> set[str]:
    from ray.util.placement_group import placement_group_table

    return set(placement_group_table(group)["bundles_to_node_id"].values())


def test_labels_decide_the_node_and_a_removed_node_ends_the_waiting(two_nodes: Any) -> None:
    """A pending group would wait for its node for ever."""
    node_b = two_nodes.add_node(num_cpus=1, num_gpus=1, labels={"place": "b"})
    groups = reserve("apart", {"target": NODE_A, "draft": NODE_B}, deadline_s=60, detached=True)
    assert len(nodes_of(groups["target"]) | nodes_of(groups["draft"])) == 2

    removal = threading.Timer(1.0, two_nodes.remove_node, [node_b])
    removal.start()
    started = time.monotonic()
    with pytest.raises(ClusterError, match="late: bundle 0 needs a node labelled place=b"):
        reserve("late", {"late": NODE_B}, deadline_s=120, detached=True)
    assert time.monotonic() - started < 120
    removal.join()
    assert groups_of("late") == {}

    remove_groups(groups)
    assert deployments() == []
    wait_until(lambda: _free_gpus() == 1)


def _free_gpus() -> float:
    import ray

    return float(ray.available_resources().get("GPU", 0))
