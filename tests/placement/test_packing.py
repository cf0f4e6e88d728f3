"""The packing against trying everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import given, settings
from placement_cases import cluster, clusters, need, node, requests

from foredraft.scheduler.placement.assign import assign
from foredraft.scheduler.placement.layout import Layout, layouts, strategies
from foredraft.scheduler.placement.models import Request
from foredraft.scheduler.placement.packing import Missing, Packing, pack
from foredraft.scheduler.placement.pools import Pool, pools_of
from foredraft.scheduler.placement.shape import Cluster
from foredraft.scheduler.placement.speed import Predictor, part_of

MOST_WAYS = 20_000


def best_of_all(layout: Layout, rooms: list[Pool], predictor: Predictor) -> float | None:
    """Tokens per second of the best way to put so many targets and drafts on each node."""
    rates = [
        total
        for on_node in product(*(list(_on_one(layout, pool)) for pool in rooms))
        if (total := _rate(layout, rooms, on_node, predictor)) is not None
    ]
    return max(rates, default=None)


def _on_one(layout: Layout, pool: Pool) -> Iterator[tuple[int, int]]:
    """(targets, drafts) that fit a node together."""
    for targets in range(pool.room // layout.target_block + 1 if pool.target_fits else 1):
        left = pool.room - targets * layout.target_block
        for drafts in range(left // layout.draft_block + 1 if pool.draft_fits and layout.draft_block else 1):
            if not layout.same_node or drafts * layout.num_targets >= targets or not layout.draft_block:
                yield targets, drafts


def _rate(
    layout: Layout, rooms: list[Pool], on_node: tuple[tuple[int, int], ...], predictor: Predictor
) -> float | None:
    """Each replica as fast as its own GPUs and, of a draft elsewhere, the slowest draft allow."""
    request = layout.request
    if sum(targets for targets, _ in on_node) != request.num_replicas:
        return None
    if (
        layout.draft_block
        and not layout.same_node
        and sum(drafts for _, drafts in on_node) < layout.num_drafts
    ):
        return None
    share = request.draft.gpu_share if request.draft else 1
    slowest = [
        predictor.remote(part_of(pool.device, share), layout.num_targets, same_node=False)
        for pool, (_, drafts) in zip(rooms, on_node, strict=True)
        if drafts and not layout.same_node
    ]
    total = 0.0
    for pool, (targets, _) in zip(rooms, on_node, strict=True):
        gpu = part_of(pool.device, request.target.gpu_share)
        if not layout.num_targets:
            drafting = predictor.in_process(gpu)
        elif layout.same_node:
            drafting = predictor.remote(part_of(pool.device, share), layout.num_targets, same_node=True)
        else:
            drafting = max(slowest, key=lambda one: one.token_s)
        total += targets * predictor.predict(gpu, drafting, stages_apart=False).tokens_per_s
    return total


@settings(max_examples=300, deadline=None)
@given(clusters(), requests())
def test_no_packing_beats_the_one_found(random: Cluster, request: Request) -> None:
    predictor = Predictor(request, random.network_round_trip_s)
    strategies = ("colocate", "split", "shared-draft") if request.draft else ("colocate",)
    for layout in (one for strategy in strategies for one in layouts(request, strategy)):
        pools = pools_of(random.groups(), layout)
        rooms = [pool for pool, nodes in pools.items() for _ in nodes]
        ways = 1
        for pool in rooms:
            ways *= len(list(_on_one(layout, pool)))
        if layout.stages_apart or ways > MOST_WAYS:
            continue
        best, found = best_of_all(layout, rooms, predictor), pack(layout, pools, predictor)
        assert isinstance(found, Missing) == (best is None)
        if isinstance(found, Packing):
            assert found.tokens_per_s == pytest.approx(best, rel=1e-9)


def test_a_target_of_two_stages_is_as_fast_as_the_slower() -> None:
    nodes = (node("fast", 1, "h100"), node("slow", 1, "l4"))
    request = Request(need("llama-3.1-8b", pipeline_parallel=2), None, "none")
    predictor = Predictor(request, 0.0)
    apart = Layout("colocate", request, stages_apart=True)
    found = pack(apart, pools_of(cluster(*nodes).groups(), apart), predictor)
    slow = pack(apart, pools_of(cluster(node("a", 1, "l4"), node("b", 1, "l4")).groups(), apart), predictor)
    assert isinstance(found, Packing)
    assert isinstance(slow, Packing)
    assert found.tokens_per_s == slow.tokens_per_s


@settings(max_examples=200, deadline=None)
@given(clusters(), requests())
def test_every_layout_keeps_to_its_nodes(random: Cluster, request: Request) -> None:
    """Not only the one that wins: no GPU twice, and each draft with its share of the targets."""
    predictor = Predictor(request, random.network_round_trip_s)
    for layout in (one for strategy in strategies(request) for one in layouts(request, strategy)):
        packing = pack(layout, pools_of(random.groups(), layout), predictor)
        if isinstance(packing, Missing):
            continue
        placed = assign(packing)
        gpus = Counter[str]()
        for worker in [replica.target for replica in placed.replicas] + placed.drafts:
            for bundle in worker.bundles:
                gpus[bundle.node] += bundle.gpus  # type: ignore[assignment]
        assert all(gpus[node.name] <= node.gpus for node in random.nodes)
        targets = Counter(replica.draft for replica in placed.replicas)
        assert set(targets) == (set(range(len(placed.drafts))) if layout.num_targets else {None})
        assert not layout.num_targets or max(targets.values()) <= layout.num_targets
