"""One real Ray for each module that asks for one; its GPUs are pretended."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from foredraft.scheduler.cluster import Connection, LocalCluster, connect


@pytest.fixture(scope="module")
def local_ray(ray_environment: None) -> Iterator[Connection]:
    """4 CPUs and 2 GPUs."""
    with connect("local", local=LocalCluster(num_cpus=4, num_gpus=2)) as connection:
        yield connection
