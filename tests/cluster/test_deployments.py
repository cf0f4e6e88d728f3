"""Deployments on a real Ray: started whole, supervised, removed whole. The GPUs are pretended."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from ray_checks import assert_nothing_left, wait_until
from ray_workers import ToyWorker, gpu_plan, toy_spec

from foredraft.scheduler.cluster import (
    ClusterError,
    Connection,
    Deployment,
    RestartPolicy,
    StartOptions,
    connect,
    find_deployment,
    remove_deployment,
    start_deployment,
)
from foredraft.scheduler.cluster.groups import remove_groups, reserve

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("local_ray")]

QUICK = RestartPolicy(check_every_s=0.2, check_deadline_s=2, first_wait_s=0.1, longest_wait_s=0.2)
OPTIONS = StartOptions(group_deadline_s=20, worker_deadline_s=120, drain_s=5, policy=QUICK)


def well(deployment: Deployment, restarts: int) -> bool:
    report = deployment.reports()[0]
    return report.state == "running" and report.restarts == restarts


def test_placing_and_closing_again_and_again_gives_the_gpus_back() -> None:
    """F137: groups of a stage stayed until the driver ended, and the next one waited for ever."""
    import ray

    for _ in range(5):
        groups = reserve("again", {"a": gpu_plan(), "b": gpu_plan()}, deadline_s=20, detached=True)
        assert ray.available_resources().get("GPU", 0) == 0
        remove_groups(groups)
        wait_until(lambda: ray.available_resources().get("GPU") == 2)
    assert_nothing_left()


def test_what_never_fits_fails_at_once_and_what_is_held_by_others_at_the_deadline() -> None:
    started = time.monotonic()
    with pytest.raises(ClusterError, match=r"a: bundle 0 needs 4 GPU on one node; the cluster has .*2 GPU"):
        reserve("big", {"a": gpu_plan(4)}, deadline_s=600, detached=True)
    held = reserve("held", {"a": gpu_plan(2)}, deadline_s=20, detached=True)
    with pytest.raises(ClusterError, match=r"b: no room within 1 s for bundle 0: 1 GPU .*free now.* 0 GPU"):
        reserve("late", {"b": gpu_plan(1)}, deadline_s=1, detached=True)
    assert time.monotonic() - started < 120
    remove_groups(held)
    assert_nothing_left()


def test_a_worker_that_dies_or_hangs_is_started_again(tmp_path: Path) -> None:
    """F143: the death of a worker is noticed, said, and repaired; so is one that does not answer."""
    import ray

    hangs = tmp_path / "hangs"
    with start_deployment("chaos", [toy_spec(hangs_file=str(hangs))], OPTIONS) as deployment:
        first = deployment.reports()[0].details
        assert first["gpus"] == "0", "F141: the driver has no GPU, the worker has the one of its bundle"
        ray.kill(deployment.worker("draft-0"), no_restart=True)
        wait_until(lambda: well(deployment, restarts=1))
        assert "its process died" in str(deployment.reports()[0].last_fault)
        hangs.touch()
        wait_until(lambda: "no answer within 2 s" in str(deployment.reports()[0].last_fault))
        hangs.unlink()
        wait_until(lambda: well(deployment, restarts=2) or well(deployment, restarts=3))
        assert deployment.reports()[0].details["pid"] != first["pid"]
    assert_nothing_left()


def test_a_worker_that_cannot_start_leaves_nothing() -> None:
    with pytest.raises(ClusterError, match=r"draft-0: did not start: .*this worker is broken"):
        start_deployment("broken", [toy_spec(broken=True)], OPTIONS)
    assert_nothing_left()


def test_a_name_is_taken_once_and_removing_twice_is_fine() -> None:
    options = StartOptions(detached=True, drain_s=5, policy=QUICK)
    start_deployment("mine", [toy_spec()], options, about={"url": "http://here"})
    with pytest.raises(ClusterError, match="name: a deployment 'mine' runs on this cluster already"):
        start_deployment("mine", [toy_spec()], options)
    assert find_deployment("mine").reports()[0].state == "running"
    assert find_deployment("mine").about() == {"url": "http://here"}
    removed = remove_deployment("mine", drain_s=5)
    assert removed.actors == ("draft-0", "supervisor")
    assert removed.groups == ("foredraft:mine:draft-0",)
    assert remove_deployment("mine", drain_s=5).actors == ()
    assert_nothing_left()


def test_an_actor_that_is_pending_on_a_bundle_goes_with_its_deployment() -> None:
    """F139: resources that nobody owned, and a negative figure, after a job with pending actors ended."""
    groups = reserve("pending", {"other": gpu_plan()}, deadline_s=20, detached=True)
    pending = _pending_actor(groups["other"])
    assert remove_deployment("pending", drain_s=0).actors == ("holds", "pending")
    del pending
    assert_nothing_left()


def _pending_actor(group: object) -> object:
    """It wants more of the bundle than is left of it."""
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    options = {
        "num_gpus": 1,
        "num_cpus": 0,
        "namespace": "foredraft:pending",
        "lifetime": "detached",
        "scheduling_strategy": PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0),
    }
    holds = ray.remote(ToyWorker).options(name="holds", **options).remote()
    ray.get(holds.check.remote(5))
    return ray.remote(ToyWorker).options(name="pending", **options).remote()


def test_this_process_is_not_connected_anywhere_else(local_ray: Connection) -> None:
    assert connect("auto") == Connection(local_ray.address, started=False, shared=True)
    with pytest.raises(ClusterError, match="this process is connected to the Ray cluster"):
        connect("local")
    with pytest.raises(ClusterError, match="this process is connected to the Ray cluster"):
        connect("10.0.0.9:6379")
