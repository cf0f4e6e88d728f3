"""One Ray of two pretended nodes for each module that asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def two_nodes(ray_environment: None) -> Iterator[str]:
    """Address of a cluster whose second node alone has the resource ``draft_node``; connected to it."""
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        cluster.add_node(num_cpus=2, resources={"draft_node": 8})
        ray.init(address=cluster.address, log_to_driver=False)
        yield cluster.address
    finally:
        ray.shutdown()
        cluster.shutdown()
