"""What there is: nodes with GPUs, CPUs and RAM, grouped by equal shape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from foredraft.scheduler.hardware_model.hardware import Gpu
from foredraft.scheduler.placement.errors import PlacementError

NETWORK_ROUND_TRIP_S = 200e-6
"""Between two nodes, where the cluster does not say otherwise."""

NO_LABELS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Shape:
    """What counts of a node: nodes alike are planned together.

    Attributes:
        gpus: all of the same kind.
        gpu: that kind; ``None`` where there are none.
        memory_bytes: RAM.
        labels: sorted, so that equal ones compare equal.
    """

    gpus: int
    gpu: Gpu | None
    cpus: int
    memory_bytes: int
    labels: tuple[tuple[str, str], ...]

    def has(self, labels: Mapping[str, str]) -> bool:
        """Whether the node carries all of these."""
        return labels.items() <= dict(self.labels).items()


@dataclass(frozen=True)
class Node:
    """One machine.

    Attributes:
        name: unique in its cluster.
        gpu_name: as the hardware table calls it, for people.
    """

    name: str
    gpus: int
    gpu: Gpu | None
    cpus: int
    memory_bytes: int
    gpu_name: str = ""
    labels: Mapping[str, str] = field(default_factory=lambda: NO_LABELS, hash=False)

    @property
    def shape(self) -> Shape:
        """What counts of it; a node without GPUs has no kind of them."""
        gpu = self.gpu if self.gpus else None
        return Shape(self.gpus, gpu, self.cpus, self.memory_bytes, tuple(sorted(self.labels.items())))


@dataclass(frozen=True)
class Cluster:
    """All nodes.

    Attributes:
        notes: for people: what of it is not counted, and why.

    Raises:
        PlacementError: two nodes of one name, or GPUs of no kind.
    """

    nodes: tuple[Node, ...]
    network_round_trip_s: float = NETWORK_ROUND_TRIP_S
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        name, times = Counter(node.name for node in self.nodes).most_common(1)[0] if self.nodes else ("", 1)
        if times > 1:
            raise PlacementError(f"nodes: {times} are called {name!r}")
        for node in self.nodes:
            if node.gpus and node.gpu is None:
                raise PlacementError(f"nodes: {node.name!r} has {node.gpus} GPUs of no kind")

    def groups(self) -> dict[Shape, list[Node]]:
        """Nodes by shape, both in the order of the cluster."""
        groups: dict[Shape, list[Node]] = {}
        for node in self.nodes:
            groups.setdefault(node.shape, []).append(node)
        return groups

    @property
    def num_gpus(self) -> int:
        """Of all nodes."""
        return sum(node.gpus for node in self.nodes)
