"""What a running Ray cluster has to offer, as a ``Cluster``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from foredraft.scheduler.cluster.ray_import import import_ray
from foredraft.scheduler.hardware_model.hardware import GPUS, Gpu
from foredraft.scheduler.placement.assign import ACCELERATOR_LABEL
from foredraft.scheduler.placement.errors import PlacementError
from foredraft.scheduler.placement.models import GIB
from foredraft.scheduler.placement.shape import NETWORK_ROUND_TRIP_S, Cluster, Node

KIND_LABEL = "foredraft.io/gpu"
"""Of a node whose GPUs Ray has no name for, or not the right one: their name in the hardware table."""

MEMORY_LABEL = "foredraft.io/gpu-memory-gb"
"""Of a node whose GPUs have another memory than the table says."""

ACCELERATOR_RESOURCE = "accelerator_type:"
BY_ACCELERATOR = {
    "H100": "h100",
    "H200": "h200",
    "A100-80G": "a100-80gb",
    "L40S": "l40s",
    "L4": "l4",
}
"""Ray's names; its A100 is left out, for that has 40 GB or 80 GB."""


def cluster_from_ray(network_round_trip_s: float = NETWORK_ROUND_TRIP_S) -> Cluster:
    """What nobody holds of the cluster that this process is connected to.

    A node's name is Ray's id of it. GPUs of an unknown kind are left out, and ``notes`` says so. RAM counts
    in whole GiB, so that nodes alike are planned together.

    Raises:
        ClusterError: Ray is not installed.
        PlacementError: a node's label of its GPU memory is no number.
    """
    ray = import_ray()
    free, nodes, notes = _free_by_node(ray), list[Node](), list[str]()
    for entry in ray.nodes():
        if not entry["Alive"]:
            continue
        node, note = _node(entry, free.get(entry["NodeID"], {}))
        nodes.append(node)
        notes += [note] if note else []
    return Cluster(tuple(nodes), network_round_trip_s, tuple(notes))


def _free_by_node(ray: Any) -> Mapping[str, Mapping[str, float]]:
    """Ray Client does not know what single nodes have left: there a task on the cluster asks."""
    if not ray.util.client.ray.is_connected():
        return _free_here()
    return ray.get(ray.remote(num_cpus=0)(_free_here).remote())  # type: ignore[no-any-return]


def _free_here() -> Mapping[str, Mapping[str, float]]:
    from ray._private.state import available_resources_per_node  # ray.util.state needs the dashboard

    free: Mapping[str, Mapping[str, float]] = available_resources_per_node()  # type: ignore[no-untyped-call]
    return free


def _node(entry: Mapping[str, Any], free: Mapping[str, float]) -> tuple[Node, str | None]:
    name, note = _kind(entry), None
    gpus = int(free.get("GPU", 0))
    if gpus and name is None:
        note = (
            f"left out: {gpus} GPUs of an unknown kind on {entry['NodeManagerAddress']}; start its Ray with "
            f"--labels {KIND_LABEL}=NAME, one of {', '.join(GPUS)}"
        )
        gpus = 0
    ram = int(free.get("memory", 0)) // GIB * GIB
    labels = dict(entry["Labels"])
    gpu = _gpu(name, labels) if name else None
    return Node(entry["NodeID"], gpus, gpu, int(free.get("CPU", 0)), ram, name or "", labels), note


def _kind(entry: Mapping[str, Any]) -> str | None:
    """The hardware table's name of a node's GPUs."""
    labels = entry["Labels"]
    if labels.get(KIND_LABEL) in GPUS:
        return str(labels[KIND_LABEL])
    named = [one.removeprefix(ACCELERATOR_RESOURCE) for one in entry["Resources"]]
    known = [BY_ACCELERATOR[one] for one in (labels.get(ACCELERATOR_LABEL), *named) if one in BY_ACCELERATOR]
    return known[0] if known else None


def _gpu(name: str, labels: Mapping[str, str]) -> Gpu:
    if MEMORY_LABEL not in labels:
        return GPUS[name]
    text = labels[MEMORY_LABEL]
    if not re.fullmatch(r"[0-9]{1,6}([.][0-9]+)?", text):
        raise PlacementError(f"{MEMORY_LABEL}: should be a number of GB (got {text!r})")
    return replace(GPUS[name], memory=float(text) * 1e9)
