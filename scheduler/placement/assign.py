"""From a packing to the workers on named nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

from foredraft.scheduler.hardware_model.hardware import Gpu
from foredraft.scheduler.placement.layout import Layout
from foredraft.scheduler.placement.memory import RESERVED_SHARE, least_split, on_cpu, on_gpu
from foredraft.scheduler.placement.models import ModelNeed
from foredraft.scheduler.placement.packing import Packing
from foredraft.scheduler.placement.plan import Bundle, MemorySplit, ReplicaPlan, Role, WorkerPlan
from foredraft.scheduler.placement.pools import Pool, unit_cpus, unit_ram, worker_ram
from foredraft.scheduler.placement.shape import Node

ACCELERATOR_LABEL = "ray.io/accelerator-type"
"""Ray's own label of a node's GPUs; kept in a bundle so that it lands on the kind it was planned for."""

Place = tuple[Node, Gpu]


@dataclass
class Assignment:
    """Targets and drafts of a packing, in the order they were placed."""

    replicas: list[ReplicaPlan] = field(default_factory=list)
    drafts: list[WorkerPlan] = field(default_factory=list)


def assign(packing: Packing) -> Assignment:
    """Name the nodes. Targets on one node come one after another, and so do those that share a draft."""
    layout = packing.layout
    taken = _take(packing)
    places = [place for pool, nodes in taken.items() for place, number in nodes for _ in range(number)]
    parts = layout.blocks_per_target
    targets = [_target(layout, places[start : start + parts]) for start in range(0, len(places), parts)]
    if not layout.num_targets:
        return Assignment([ReplicaPlan(target, None) for target in targets])
    if layout.same_node:
        return _with_drafts_beside(layout, taken, targets)
    drafts = [_draft(layout, place) for place in _left_for_drafts(packing, taken)]
    replicas = [ReplicaPlan(target, number // layout.num_targets) for number, target in enumerate(targets)]
    return Assignment(replicas, drafts)


Taken = dict[Pool, list[tuple[Place, int]]]


def _take(packing: Packing) -> Taken:
    """Blocks of targets on each node: one node is filled before the next."""
    taken: Taken = {}
    for pool, left in packing.blocks.items():
        taken[pool] = []
        for node in packing.pools[pool]:
            number = min(left, pool.targets(packing.layout))
            if not number:
                break
            taken[pool].append(((node, pool.device), number))
            left -= number
    return taken


def _with_drafts_beside(layout: Layout, taken: Taken, targets: list[WorkerPlan]) -> Assignment:
    result = Assignment()
    waiting = iter(targets)
    for nodes in taken.values():
        for place, number in nodes:
            first = len(result.drafts)
            result.drafts += [_draft(layout, place) for _ in range(ceil(number / layout.num_targets))]
            result.replicas += [
                ReplicaPlan(next(waiting), first + on_node // layout.num_targets) for on_node in range(number)
            ]
    return result


def _left_for_drafts(packing: Packing, taken: Taken) -> list[Place]:
    """Places of all drafts, in the room that targets leave."""
    layout, places = packing.layout, list[Place]()
    for pool in packing.draft_pools:
        used = {place[0].name: number for place, number in taken.get(pool, [])}
        for node in packing.pools[pool]:
            room = pool.room - used.get(node.name, 0) * layout.target_block
            places += [(node, pool.device)] * (room // layout.draft_block)
            if len(places) >= layout.num_drafts:
                return places[: layout.num_drafts]
    raise AssertionError("a packing has room for its drafts")


def _target(layout: Layout, places: list[Place]) -> WorkerPlan:
    target, request = layout.request.target, layout.request
    least = least_split(target, layout.guest, request, 1)
    if request.device == "cpu":
        ram = worker_ram(layout, target, layout.guest)
        return _cpu_worker("target", layout, target, places[0], on_cpu(least, request), ram)
    return _gpu_worker("target", layout, target, places, layout.target_block, least)


def _draft(layout: Layout, place: Place) -> WorkerPlan:
    draft = layout.draft
    assert draft is not None, "only a draft model has workers of its own"
    least = least_split(draft, None, layout.request, layout.num_targets)
    if layout.draft_block and layout.request.device == "gpu":
        return _gpu_worker("draft", layout, draft, [place], layout.draft_block, least)
    split = on_cpu(least, layout.request)
    return _cpu_worker("draft", layout, draft, place, split, worker_ram(layout, draft))


def _gpu_worker(
    role: Role, layout: Layout, need: ModelNeed, places: list[Place], units: int, least: MemorySplit
) -> WorkerPlan:
    smallest = min(device.memory for _, device in places)
    split = on_gpu(least, smallest, need.gpu_share)
    assert split is not None, "pools hold only devices that the model fits"
    bundles = tuple(
        Bundle(
            units / layout.units_per_gpu,
            units * unit_cpus(layout),
            units * unit_ram(layout),
            node.name,
            _labels(node, need, on_gpu=True),
        )
        for node, _ in places
    )
    together = len({node.name for node, _ in places}) == 1
    fraction = (1 - RESERVED_SHARE) * need.gpu_share
    return WorkerPlan(role, bundles, "STRICT_PACK" if together else "PACK", fraction, split)


def _cpu_worker(
    role: Role, layout: Layout, need: ModelNeed, place: Place, split: MemorySplit, ram: int
) -> WorkerPlan:
    node = place[0]
    bundle = Bundle(0, layout.worker_cpus, ram, node.name, _labels(node, need, on_gpu=False))
    return WorkerPlan(role, (bundle,), "STRICT_PACK", 0.0, split)


def _labels(node: Node, need: ModelNeed, *, on_gpu: bool) -> tuple[tuple[str, str], ...]:
    labels = dict(need.labels)
    if on_gpu and ACCELERATOR_LABEL in node.labels:
        labels[ACCELERATOR_LABEL] = node.labels[ACCELERATOR_LABEL]
    return tuple(sorted(labels.items()))
