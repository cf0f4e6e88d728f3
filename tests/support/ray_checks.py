"""What a test asks of a Ray cluster: is something left, and does this become true in time?"""

from __future__ import annotations

import time
from collections.abc import Callable

from foredraft.scheduler.cluster.removal import deployments


def wait_until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    ends = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < ends, f"not so after {seconds:g} s"
        time.sleep(0.1)


def assert_nothing_left(gpus: float = 2) -> None:
    """No actor or placement group of ours, none that is unnamed, and every GPU and CPU is free again."""
    import ray
    from ray.util.placement_group import placement_group_table

    assert deployments() == []
    assert [one for one in placement_group_table().values() if one["state"] != "REMOVED"] == []
    total = ray.cluster_resources()
    for name in ("GPU", "CPU"):
        wait_until(lambda name=name: ray.available_resources().get(name, 0) == total.get(name, 0))
    assert total.get("GPU", 0) == gpus
    assert all(amount >= 0 for amount in ray.available_resources().values())
