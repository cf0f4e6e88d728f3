"""Why a plan is what it is, in lines that a person can read."""

from __future__ import annotations

from collections import Counter

from foredraft.scheduler.placement.layout import Layout
from foredraft.scheduler.placement.packing import Packing
from foredraft.scheduler.placement.plan import MemorySplit, WorkerPlan
from foredraft.scheduler.placement.shape import Node
from foredraft.scheduler.placement.shortage import gb
from foredraft.scheduler.placement.speed import REMOTE_CALL_S


def reasons(packing: Packing, target: WorkerPlan, draft: WorkerPlan | None) -> tuple[str, ...]:
    """One line per choice.

    Args:
        target, draft: the first of each.
    """
    layout = packing.layout
    lines = [_strategy(packing), _targets(packing), _group(target)]
    lines += [_memory("target", target.memory, layout)]
    if draft:
        lines += [_draft(layout, draft), _memory("draft", draft.memory, layout)]
    return (*lines, _length(packing))


def against(winner: Packing, other: Packing) -> str:
    """Why ``other`` was not taken."""
    less = 1 - other.tokens_per_s / winner.tokens_per_s
    pace = f"{less:.1%} fewer tokens/s" if less > 0.0005 else "no more tokens/s"
    if other.layout.num_gpus:
        pace += f" on {other.layout.num_gpus:g} GPUs, the plan has {winner.layout.num_gpus:g}"
    return f"{pace}: {_cost(other)}"


def _cost(packing: Packing) -> str:
    layout = packing.layout
    if not packing.slowest.num_draft_tokens:
        return "drafts from there do not pay, so it would not draft at all"
    if layout.strategy == "colocate":
        return "target and draft take turns on the same GPU"
    if layout.strategy == "cpu-draft":
        return f"{layout.worker_cpus} CPUs draft slowly"
    wait = f"each step waits {REMOTE_CALL_S * 1e3:g} ms or more for the draft's answer"
    if layout.strategy == "shared-draft":
        return f"{wait}, and for the {layout.num_targets - 1} other targets of the draft"
    return wait


def _strategy(packing: Packing) -> str:
    layout = packing.layout
    chosen = "fastest by prediction" if layout.request.strategy == "auto" else "as asked for"
    where = f" on {layout.num_gpus:g} GPUs" if layout.num_gpus else ""
    return f"strategy {layout.strategy}: {chosen}, {packing.tokens_per_s:.0f} tokens/s{where}"


def _targets(packing: Packing) -> str:
    names: Counter[str] = Counter()
    for pool, number in packing.blocks.items():
        names[_kind(packing.layout, packing.pools[pool][0])] += number
    places = ", ".join(f"{number} on {name}" for name, number in names.items())
    what = "stages" if packing.layout.stages_apart else "targets"
    return f"{what}: {places}; the fastest devices that hold them come first"


def _kind(layout: Layout, node: Node) -> str:
    if layout.request.device == "cpu":
        return f"{layout.worker_cpus} CPUs each"
    return node.gpu_name or "GPUs"


def _group(target: WorkerPlan) -> str:
    first = target.bundles[0]
    if len(target.bundles) == 1:
        devices = f"its {first.gpus:g} GPUs are" if first.gpus > 1 else "it is"
        return f"group {target.strategy}: a target is one bundle, so {devices} in one node"
    why = (
        "all of them in one node" if target.strategy == "STRICT_PACK" else "stages may be in different nodes"
    )
    return f"group {target.strategy}: one bundle per pipeline stage of {first.gpus:g} GPUs each, {why}"


def _memory(role: str, split: MemorySplit, layout: Layout) -> str:
    guest = f", draft {gb(split.draft_bytes)}" if split.draft_bytes else ""
    per = "GPU" if role == "target" and layout.request.device == "gpu" else "worker"
    return (
        f"memory of the {role}, per {per}: {gb(split.total_bytes)} = weights {gb(split.weights_bytes)}, "
        f"cache {gb(split.kv_bytes)}{guest}, reserve {gb(split.reserve_bytes)}"
    )


def _draft(layout: Layout, draft: WorkerPlan) -> str:
    bundle = draft.bundles[0]
    device = f"{bundle.gpus:g} GPU" if bundle.gpus else f"{bundle.cpus:g} CPUs"
    near = "on the node of its targets" if layout.same_node else "wherever room is left, over the network"
    for_whom = f"{layout.num_targets} targets each" if layout.num_targets > 1 else "one target each"
    return f"drafts: {layout.num_drafts} of {device}, {for_whom}, {near}"


def _length(packing: Packing) -> str:
    length = packing.slowest.num_draft_tokens
    request = packing.layout.request
    if not length:
        return f"draft length 0: at batch {request.batch_size} drafting does not pay"
    rates = ", ".join(f"{rate:g}" for rate in request.acceptance[:length])
    return (
        f"draft length {length}: fastest at batch {request.batch_size} with an assumed acceptance of {rates}"
    )
