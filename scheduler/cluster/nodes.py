"""What Ray says its nodes have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from foredraft.scheduler.cluster.errors import ClusterError
from foredraft.scheduler.cluster.ray_import import import_ray
from foredraft.scheduler.cluster.resources import Node, Resources

HEAD_RESOURCE = "node:__internal_head__"
"""Of which the head has 1."""


def alive_nodes() -> list[Node]:
    """The nodes of the cluster that this process is connected to."""
    return [
        Node(node["NodeManagerAddress"], node["Resources"], node["Labels"])
        for node in import_ray().nodes()
        if node["Alive"]
    ]


def free_resources() -> Resources:
    """What nobody holds now, over the whole cluster."""
    free: Resources = import_ray().available_resources()
    return free


def on_head(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function answers on the cluster's head, which may be another machine than this.

    Raises:
        ClusterError: the head is gone.
        Exception: that of the function; it is a ``RayTaskError`` too.
    """
    ray = import_ray()
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = NodeAffinitySchedulingStrategy(_head()["NodeID"], soft=False)
    task = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(function)
    return ray.get(task.remote(*arguments))


def head_address() -> str:
    """The IP address of the cluster's head.

    Raises:
        ClusterError: it is gone.
    """
    address: str = _head()["NodeManagerAddress"]
    return address


def _head() -> dict[str, Any]:
    for node in import_ray().nodes():
        if node["Alive"] and HEAD_RESOURCE in node["Resources"]:
            return dict(node)
    raise ClusterError("the cluster's head is gone")
