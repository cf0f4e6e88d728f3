"""From a cluster and a request to the best plan."""

from __future__ import annotations

from collections.abc import Sequence

from foredraft.scheduler.placement.assign import assign
from foredraft.scheduler.placement.errors import PlacementError
from foredraft.scheduler.placement.layout import Layout, layouts, strategies, why_pointless
from foredraft.scheduler.placement.models import Request
from foredraft.scheduler.placement.packing import Packing, pack
from foredraft.scheduler.placement.plan import Plan, Rejected, Strategy, WorkerPlan
from foredraft.scheduler.placement.pools import pools_of
from foredraft.scheduler.placement.reasons import against, reasons
from foredraft.scheduler.placement.shape import Cluster
from foredraft.scheduler.placement.shortage import Groups, shortage
from foredraft.scheduler.placement.speed import Predictor


def make_plan(cluster: Cluster, request: Request) -> Plan:
    """Where target and draft go: of all layouts the one of most tokens per second, then of fewest GPUs.

    Raises:
        PlacementError: there is no room; names for each strategy that was considered the resource that is
            short, and by how much.
    """
    groups = cluster.groups()
    predictor = Predictor(request, cluster.network_round_trip_s)
    considered = {one: _best(request, one, groups, predictor) for one in strategies(request)}
    found = [result for result in considered.values() if isinstance(result, Packing)]
    if not found:
        faults = (f"{strategy}: {reason}" for strategy, reason in considered.items())
        raise PlacementError("; ".join(("no plan fits", *faults, *cluster.notes)))
    winner = max(found, key=_merit)
    placed = assign(winner)
    return Plan(
        winner.layout.strategy,
        tuple(placed.replicas),
        tuple(placed.drafts),
        winner.tokens_per_s,
        winner.slowest.num_draft_tokens,
        (*reasons(winner, placed.replicas[0].target, _first(placed.drafts)), *cluster.notes),
        tuple(_rejected(one, result, winner) for one, result in considered.items() if result is not winner),
    )


def _best(request: Request, strategy: Strategy, groups: Groups, predictor: Predictor) -> Packing | str:
    """The best packing of a strategy, or why there is none."""
    pointless = why_pointless(request, strategy)
    if pointless:
        return pointless
    found: list[Packing] = []
    missing: list[tuple[int, Layout]] = []
    for layout in layouts(request, strategy):
        result = pack(layout, pools_of(groups, layout), predictor)
        if isinstance(result, Packing):
            found.append(result)
        else:
            missing.append((result.units(layout), layout))
    if found:
        return max(found, key=_merit)
    return shortage(min(missing, key=lambda one: one[0])[1], groups, predictor)


def _first(drafts: Sequence[WorkerPlan]) -> WorkerPlan | None:
    return drafts[0] if drafts else None


def _merit(packing: Packing) -> tuple[float, float]:
    return packing.tokens_per_s, -packing.layout.num_gpus


def _rejected(strategy: Strategy, result: Packing | str, winner: Packing) -> Rejected:
    if isinstance(result, str):
        return Rejected(strategy, result, None)
    return Rejected(strategy, against(winner, result), result.tokens_per_s)
