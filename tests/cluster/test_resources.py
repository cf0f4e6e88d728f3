"""What can never fit is known before anything is asked for, and named."""

import pytest
from ray_workers import gpu_bundle, gpu_plan, worker_plan

from foredraft.scheduler.cluster.resources import Node, bundle_resources, shortfall

NODES = [
    Node("10.0.0.1", {"GPU": 2, "CPU": 8, "memory": 64 * 2**30}),
    Node("10.0.0.2", {"GPU": 2, "CPU": 8}, {"zone": "b"}),
]


def test_what_fits_lacks_nothing() -> None:
    pair = worker_plan(gpu_bundle(1), gpu_bundle(1), strategy="STRICT_PACK")
    assert shortfall({"a": pair, "b": gpu_plan(2)}, NODES) is None


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (gpu_plan(4), ["a: bundle 0 needs 4 GPU on one node", "10.0.0.1: 2 GPU, 8 CPU, 64 GiB memory"]),
        (worker_plan(gpu_bundle(1), gpu_bundle(1, cpus=9)), ["bundle 1 needs 9 CPU on one node"]),
        (worker_plan(gpu_bundle(node_labels=(("zone", "c"),))), ["bundle 0 needs a node labelled zone=c"]),
        (worker_plan(gpu_bundle(2, node_labels=(("zone", "b"),)), gpu_bundle(3)), ["bundle 1 needs 3 GPU"]),
        (
            worker_plan(gpu_bundle(2), gpu_bundle(2), strategy="STRICT_PACK"),
            ["its 2 bundles need 4 GPU on one node"],
        ),
        (worker_plan(*[gpu_bundle(1)] * 3, strategy="STRICT_SPREAD"), ["its 3 bundles need as many nodes"]),
        (worker_plan(*[gpu_bundle(2)] * 3), ["need 6 GPU together; the cluster has 4 GPU"]),
    ],
)
def test_what_cannot_fit_is_named(plan: object, words: list[str]) -> None:
    reason = shortfall({"a": plan}, NODES)
    assert reason is not None
    for part in words:
        assert part in reason


def test_a_cluster_without_nodes_says_so() -> None:
    assert "the cluster has no node" in str(shortfall({"a": gpu_plan(1)}, []))


def test_what_a_bundle_does_not_need_is_not_asked_for() -> None:
    assert bundle_resources(gpu_bundle(0.5)) == {"GPU": 0.5}
