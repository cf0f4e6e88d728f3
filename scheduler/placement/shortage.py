"""Why a layout does not fit: which resource is short, and by how much."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from foredraft.scheduler.placement.layout import Layout
from foredraft.scheduler.placement.memory import least_split, missing_bytes
from foredraft.scheduler.placement.models import ModelNeed
from foredraft.scheduler.placement.packing import Missing, pack
from foredraft.scheduler.placement.pools import pools_of, unit_cpus, unit_ram, worker_ram
from foredraft.scheduler.placement.shape import Node, Shape
from foredraft.scheduler.placement.speed import Predictor

Groups = Mapping[Shape, Sequence[Node]]
PLENTY = 2**60


def shortage(layout: Layout, groups: Groups, predictor: Predictor) -> str:
    """One line for a layout that ``pack`` found no room for."""
    request = layout.request
    target = _model_misfit("target", layout, request.target, layout.guest, groups)
    if target:
        return target
    if layout.draft:
        draft = _model_misfit("draft", layout, layout.draft, None, groups)
        if draft:
            return draft
    return _count_misfit(layout, groups, predictor)


def _model_misfit(
    role: str, layout: Layout, need: ModelNeed, guest: ModelNeed | None, groups: Groups
) -> str | None:
    """What keeps a single copy from its place: labels, the size of a GPU, or that there is none."""
    labelled = [shape for shape in groups if shape.has(need.labels)]
    if not labelled:
        wanted = ", ".join(f"{name}={value}" for name, value in need.labels.items())
        return f"{role}: no node is labelled {wanted}" if wanted else "nodes: there are none"
    if layout.request.device == "cpu" or (role == "draft" and layout.draft_on_cpus):
        return None
    kinds = [shape.gpu for shape in labelled if shape.gpu]
    if not kinds:
        return f"{role}: needs GPUs, and the nodes have none: {layout.num_gpus:g} short"
    num_targets = layout.num_targets if role == "draft" else 1
    least = least_split(need, guest, layout.request, num_targets)
    largest = max(kind.memory for kind in kinds)
    short = missing_bytes(least, largest, need.gpu_share)
    if not short:
        return None
    parts = f"{gb(least.weights_bytes)} of weights and {gb(least.kv_bytes)} of cache"
    parts += f" and {gb(least.draft_bytes)} for the draft" if guest else ""
    return f"{role}: GPU memory is {gb(short)} short: {parts} on each, the largest GPU has {gb(largest)}"


def _count_misfit(layout: Layout, groups: Groups, predictor: Predictor) -> str:
    """The first resource that would be short even if there were plenty of those after it."""
    plenty = {"GPUs": {"cpus": PLENTY, "memory_bytes": PLENTY}, "CPUs": {"memory_bytes": PLENTY}, "RAM": {}}
    if layout.request.device == "cpu":
        del plenty["GPUs"]
    for resource, relaxed in plenty.items():
        missing = pack(layout, pools_of(_relaxed(groups, relaxed), layout), predictor)
        if isinstance(missing, Missing):
            return _short_of(resource, layout, missing, groups)
    raise AssertionError("shortage() is for layouts that do not fit")


def _relaxed(groups: Groups, values: Mapping[str, int]) -> Groups:
    relaxed: dict[Shape, list[Node]] = {}
    for shape, nodes in groups.items():
        relaxed.setdefault(replace(shape, **values), []).extend(nodes)  # type: ignore[arg-type]
    return relaxed


def _short_of(resource: str, layout: Layout, missing: Missing, groups: Groups) -> str:
    units, where = missing.units(layout), _where(layout)
    if resource == "GPUs":
        total = sum(shape.gpus * len(nodes) for shape, nodes in groups.items())
        largest = max(shape.gpus for shape in groups)
        return (
            f"GPUs: no place for {units / layout.units_per_gpu:g} of the {layout.num_gpus:g} needed, "
            f"{where}; the nodes have {total}, at most {largest} in one"
        )
    on_cpus = missing.blocks if layout.draft_on_cpus else 0
    if resource == "CPUs":
        return f"CPUs: {units * unit_cpus(layout) + on_cpus * layout.worker_cpus} short, {where}"
    beside = on_cpus * worker_ram(layout, layout.draft) if layout.draft and on_cpus else 0
    return f"RAM: {gb(units * unit_ram(layout) + beside)} short, {where}"


def _where(layout: Layout) -> str:
    gpus = layout.target_block / layout.units_per_gpu
    if layout.request.device == "cpu":
        return f"{layout.worker_cpus} CPUs for each worker"
    return f"{gpus:g} in one node for each {'stage' if layout.stages_apart else 'target'}"


def gb(num_bytes: float) -> str:
    """For people."""
    return f"{num_bytes / 1e9:.1f} GB"
