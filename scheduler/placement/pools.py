"""Nodes that are alike for a layout: how many workers they have room for, and how fast those are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from foredraft.scheduler.hardware_model.hardware import Gpu
from foredraft.scheduler.placement.layout import Layout
from foredraft.scheduler.placement.memory import least_split, missing_bytes, on_cpu
from foredraft.scheduler.placement.models import ModelNeed
from foredraft.scheduler.placement.shape import Node, Shape
from foredraft.scheduler.placement.speed import cpu_device


@dataclass(frozen=True)
class Pool:
    """What nodes alike offer.

    Attributes:
        device: their GPUs, or the CPUs of a worker.
        room: units of each, that is parts of GPUs with the CPUs and the RAM that go with them; where drafts
            are on the CPUs of the same node, the units that leave enough for those.
        target_fits, draft_fits: by labels and memory.
    """

    device: Gpu
    room: int
    target_fits: bool
    draft_fits: bool

    def targets(self, layout: Layout) -> int:
        """Blocks of targets that a node has room for, with their drafts if those have to be there."""
        if not self.target_fits or (layout.num_targets and layout.same_node and not self.draft_fits):
            return 0
        if not (layout.num_targets and layout.same_node and layout.draft_block):
            return self.room // layout.target_block
        whole = layout.num_targets * layout.target_block + layout.draft_block
        cells, rest = divmod(self.room, whole)
        return cells * layout.num_targets + max(0, rest - layout.draft_block) // layout.target_block

    def drafts(self, layout: Layout) -> int:
        """Drafts that a node has room for without targets."""
        return self.room // layout.draft_block if self.draft_fits and layout.draft_block else 0


Pools = Mapping[Pool, Sequence[Node]]


def pools_of(groups: Mapping[Shape, Sequence[Node]], layout: Layout) -> Pools:
    """All nodes of a cluster that have room, by what they offer to a layout."""
    pools: dict[Pool, list[Node]] = {}
    offer = _on_cpus if layout.request.device == "cpu" else _on_gpus
    for shape, nodes in groups.items():
        pool = offer(shape, layout)
        if pool and pool.room:
            pools.setdefault(pool, []).extend(nodes)
    return pools


def worker_ram(layout: Layout, need: ModelNeed, guest: ModelNeed | None = None) -> int:
    """Bytes of RAM of a worker on CPUs."""
    num_targets = layout.num_targets if need is layout.draft else 1
    return on_cpu(least_split(need, guest, layout.request, num_targets), layout.request).total_bytes


def unit_cpus(layout: Layout) -> int:
    """CPUs that go with each unit."""
    return layout.worker_cpus if layout.request.device == "cpu" else layout.request.cpus_per_gpu


def unit_ram(layout: Layout) -> int:
    """RAM that goes with each unit, in bytes."""
    request = layout.request
    if request.device == "gpu":
        return request.memory_bytes_per_gpu
    target = worker_ram(layout, request.target, layout.guest)
    return max(target, worker_ram(layout, layout.draft)) if layout.draft else target


def _on_gpus(shape: Shape, layout: Layout) -> Pool | None:
    if shape.gpu is None:
        return None
    request, draft = layout.request, layout.draft
    device = shape.gpu
    target_fits = shape.has(request.target.labels) and not missing_bytes(
        least_split(request.target, layout.guest, request, 1), device.memory, request.target.gpu_share
    )
    draft_fits = bool(draft) and shape.has(draft.labels if draft else {})
    if draft and not layout.draft_on_cpus:
        least = least_split(draft, None, request, layout.num_targets)
        draft_fits = draft_fits and not missing_bytes(least, device.memory, draft.gpu_share)
    return Pool(device, _gpu_room(shape, layout), target_fits, draft_fits)


def _gpu_room(shape: Shape, layout: Layout) -> int:
    units, cpus, ram = shape.gpus * layout.units_per_gpu, unit_cpus(layout), unit_ram(layout)
    if not layout.draft_on_cpus or layout.draft is None:
        return min(units, shape.cpus // cpus, shape.memory_bytes // ram)
    block = layout.target_block
    targets = min(
        units // block,
        shape.cpus // (block * cpus + layout.worker_cpus),
        shape.memory_bytes // (block * ram + worker_ram(layout, layout.draft)),
    )
    return targets * block


def _on_cpus(shape: Shape, layout: Layout) -> Pool | None:
    device = cpu_device(layout.worker_cpus)
    room = min(shape.cpus // layout.worker_cpus, shape.memory_bytes // unit_ram(layout))
    draft = layout.draft
    return Pool(
        device, room, shape.has(layout.request.target.labels), bool(draft and shape.has(draft.labels))
    )
