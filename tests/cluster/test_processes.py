"""F145: no process of a Ray that we started outlives it, and none of its files are asked for afterwards."""

from __future__ import annotations

import psutil
import pytest
from ray_workers import toy_spec

from foredraft.scheduler.cluster import LocalCluster, StartOptions, connect, start_deployment

pytestmark = pytest.mark.ray


def children() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def test_starting_and_stopping_three_times_leaves_no_process(ray_environment: None) -> None:
    before = {child.pid for child in children()}
    for round_number in range(3):
        with connect("local", local=LocalCluster(num_cpus=2, num_gpus=1)) as connection:
            assert connection.started
            ours = children()
            if round_number == 0:
                start_deployment("once", [toy_spec()], StartOptions(detached=True))
                ours = children()
        _gone, alive = psutil.wait_procs(ours, timeout=60)
        assert [one for one in alive if one.pid not in before] == []
