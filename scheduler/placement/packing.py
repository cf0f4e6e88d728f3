"""How many targets go where, so that all of them together are as fast as they can be.

Exact, not a search: the GPUs of a draft divide those of a target, so it does not matter for the room left to
drafts on which of their nodes the targets are. What remains is to take the fastest places first while the
nodes that drafts need keep enough room (the greedy choice is the best one in a laminar matroid). So a better
cluster never gives a worse packing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from foredraft.scheduler.hardware_model.hardware import Gpu
from foredraft.scheduler.placement.layout import Layout
from foredraft.scheduler.placement.pools import Pool, Pools
from foredraft.scheduler.placement.speed import Drafting, Prediction, Predictor, cpu_device, part_of


@dataclass(frozen=True)
class Packing:
    """One that fits.

    Attributes:
        blocks: of targets in each pool, the fastest pools first.
        draft_pools: that hold drafts of other nodes' targets, the fastest first.
        slowest: prediction of the slowest replica.
    """

    layout: Layout
    pools: Pools
    blocks: dict[Pool, int]
    draft_pools: tuple[Pool, ...]
    tokens_per_s: float
    slowest: Prediction


@dataclass(frozen=True)
class Missing:
    """What there is no room for.

    Attributes:
        blocks: of targets.
        drafts: that are not on the node of their targets.
    """

    blocks: int
    drafts: int

    def units(self, layout: Layout) -> int:
        """That they would take."""
        drafts = self.drafts
        if layout.num_targets and layout.same_node:
            drafts = ceil(self.blocks / layout.num_targets)
        return self.blocks * layout.target_block + drafts * layout.draft_block


def pack(layout: Layout, pools: Pools, predictor: Predictor) -> Packing | Missing:
    """The fastest packing of a layout, or what is missing."""
    found: list[Packing] = []
    missing: list[Missing] = []
    for draft_pools in _draft_pools(layout, pools, predictor):
        one = _pack(layout, pools, predictor, draft_pools)
        if isinstance(one, Packing):
            found.append(one)
        else:
            missing.append(one)
    if found:
        return max(found, key=lambda packing: packing.tokens_per_s)
    return min(missing, key=lambda one: one.units(layout))


def _draft_pools(layout: Layout, pools: Pools, predictor: Predictor) -> Iterator[tuple[Pool, ...]]:
    """Pools for drafts: the fastest kind only, the two fastest, ...; each set counts as its slowest."""
    if not layout.num_targets or layout.same_node:
        yield ()
        return
    seconds = {
        pool: predictor.remote(
            _draft_device(layout, pool.device), layout.num_targets, same_node=False
        ).token_s
        for pool in pools
        if pool.draft_fits
    }
    by_speed = sorted(seconds, key=lambda pool: seconds[pool])
    for slowest in sorted(set(seconds.values())):
        yield tuple(pool for pool in by_speed if seconds[pool] <= slowest)
    if not seconds:
        yield ()


def _pack(
    layout: Layout, pools: Pools, predictor: Predictor, draft_pools: tuple[Pool, ...]
) -> Packing | Missing:
    rated = _rated(layout, pools, predictor, draft_pools)
    needed = layout.request.num_replicas * layout.blocks_per_target
    apart = bool(layout.num_targets) and not layout.same_node
    room = sum(pool.drafts(layout) * len(pools[pool]) for pool in draft_pools) - layout.num_drafts
    beside_drafts = max(0, room) * layout.draft_block // layout.target_block
    shared, blocks = set(draft_pools), dict[Pool, int]()
    for pool in rated:
        take = min(pool.targets(layout) * len(pools[pool]), needed - sum(blocks.values()))
        if pool in shared:
            take = min(take, beside_drafts)
            beside_drafts -= take
        if take:
            blocks[pool] = take
    missing = Missing(needed - sum(blocks.values()), max(0, -room) if apart else 0)
    if missing.blocks or missing.drafts:
        return missing
    tokens_per_s = _sum_of_slowest(rated, blocks, layout.blocks_per_target)
    return Packing(layout, pools, blocks, draft_pools, tokens_per_s, rated[list(blocks)[-1]])


def _rated(
    layout: Layout, pools: Pools, predictor: Predictor, draft_pools: tuple[Pool, ...]
) -> dict[Pool, Prediction]:
    """Of a target in each pool that takes one, the fastest first."""
    rated = {
        pool: predictor.predict(
            part_of(pool.device, layout.request.target.gpu_share),
            drafting_of(layout, pool, predictor, draft_pools),
            stages_apart=layout.stages_apart,
        )
        for pool in pools
        if pool.targets(layout)
    }
    return dict(sorted(rated.items(), key=lambda item: -item[1].tokens_per_s))


def drafting_of(layout: Layout, pool: Pool, predictor: Predictor, draft_pools: tuple[Pool, ...]) -> Drafting:
    """What drafting costs a target in ``pool``."""
    if not layout.num_targets:
        return predictor.in_process(part_of(pool.device, layout.request.target.gpu_share))
    device = pool.device if layout.same_node or not draft_pools else draft_pools[-1].device
    return predictor.remote(_draft_device(layout, device), layout.num_targets, same_node=layout.same_node)


def _draft_device(layout: Layout, device: Gpu) -> Gpu:
    if layout.draft_on_cpus:
        return cpu_device(layout.worker_cpus)
    return part_of(device, layout.draft.gpu_share if layout.draft else 1.0)


def _sum_of_slowest(rated: dict[Pool, Prediction], blocks: dict[Pool, int], per_target: int) -> float:
    """Tokens per second of all targets, each of ``per_target`` blocks in a row and as fast as the slowest."""
    total, before = 0.0, 0
    for pool, number in blocks.items():
        ends = (before + number) // per_target - before // per_target
        total += ends * rated[pool].tokens_per_s
        before += number
    return total
