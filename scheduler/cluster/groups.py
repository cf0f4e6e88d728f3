"""Placement groups: reserved within a deadline or not at all, and given back."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from foredraft.scheduler.cluster.errors import ClusterError
from foredraft.scheduler.cluster.names import deployment_of, group_name
from foredraft.scheduler.cluster.nodes import alive_nodes, free_resources
from foredraft.scheduler.cluster.ray_import import import_ray
from foredraft.scheduler.cluster.resources import bundle_resources, shortfall, shown_all
from foredraft.scheduler.placement.plan import WorkerPlan

POLL_S = 0.2
REMOVAL_DEADLINE_S = 30.0


def reserve(
    deployment: str,
    workers: Mapping[str, WorkerPlan],
    *,
    deadline_s: float,
    detached: bool,
    nodes_may_join: bool = False,
) -> dict[str, Any]:
    """A placement group for each worker; either all of them are there, or none stays behind.

    Args:
        workers: name -> what it needs.
        deadline_s: for all together.
        detached: they outlive this process; else they end with it.
        nodes_may_join: an autoscaler may bring nodes, so what does not fit now may fit within the deadline.

    Raises:
        ClusterError: what is missing, and what the cluster has. At once where nothing that happens could
            help, else at the deadline.
    """
    names = {name: group_name(deployment, name) for name in workers}
    if taken := sorted(groups_of(deployment).keys() & names.values()):
        raise ClusterError(f"placement groups of these names exist already: {', '.join(taken)}")
    ends = time.monotonic() + deadline_s
    try:
        _check_fits(workers, nodes_may_join)
        groups = {name: _ask_for(names[name], worker, detached) for name, worker in workers.items()}
        for name in workers:
            while not _is_there(groups[name]):
                _check_fits(workers, nodes_may_join)
                if time.monotonic() > ends:
                    raise ClusterError(_late(name, workers[name], deadline_s))
    except BaseException:
        # By name: an interrupt may fall between the making of a group and our having it.
        made = groups_of(deployment)
        remove_groups({name: made[name] for name in names.values() if name in made})
        raise
    return groups


def remove_groups(groups: Mapping[str, Any], deadline_s: float = REMOVAL_DEADLINE_S) -> None:
    """Give them back, pending ones too. What runs in them ends. Those that are gone already are ignored.

    Raises:
        ClusterError: some are still there at the deadline.
    """
    from ray.util import remove_placement_group

    for group in groups.values():
        remove_placement_group(group)
    ends = time.monotonic() + deadline_s
    while left := [name for name, group in groups.items() if group_state(group) != "REMOVED"]:
        if time.monotonic() > ends:
            raise ClusterError(f"placement groups not removed within {deadline_s:g} s: {', '.join(left)}")
        time.sleep(POLL_S)


def groups_of(deployment: str) -> dict[str, Any]:
    """The placement groups of a deployment that are not removed, whoever made them, by name."""
    from ray import PlacementGroupID
    from ray.util.placement_group import PlacementGroup, placement_group_table

    return {
        entry["name"]: PlacementGroup(PlacementGroupID.from_hex(group_id))
        for group_id, entry in placement_group_table().items()
        if deployment_of(entry["name"]) == deployment and entry["state"] != "REMOVED"
    }


def _ask_for(name: str, worker: WorkerPlan, detached: bool) -> Any:
    import_ray()
    from ray.util import placement_group

    return placement_group(
        [bundle_resources(bundle) for bundle in worker.bundles],
        strategy=worker.strategy,
        name=name,
        lifetime="detached" if detached else None,
        bundle_label_selector=[dict(bundle.node_labels) for bundle in worker.bundles],
    )


def _is_there(group: Any) -> bool:
    """Waits a moment for it."""
    there: bool = group.wait(POLL_S)
    return there


def _check_fits(workers: Mapping[str, WorkerPlan], nodes_may_join: bool) -> None:
    if not nodes_may_join and (reason := shortfall(workers, alive_nodes())):
        raise ClusterError(reason)


def _late(name: str, worker: WorkerPlan, deadline_s: float) -> str:
    wanted = "; ".join(
        f"bundle {index}: {shown_all(bundle_resources(bundle))}"
        for index, bundle in enumerate(worker.bundles)
    )
    free = free_resources()
    resources = dict.fromkeys(name for bundle in worker.bundles for name in bundle_resources(bundle))
    return (
        f"{name}: no room within {deadline_s:g} s for {wanted} ({worker.strategy}); free now in the whole "
        f"cluster: {shown_all({resource: free.get(resource, 0.0) for resource in resources})}"
    )


def group_state(group: Any) -> str:
    """CREATED, PENDING, RESCHEDULING, REMOVED, as Ray says it."""
    from ray.util.placement_group import placement_group_table

    # Ray forgets removed groups after a while; the answer then has no state.
    state: str = placement_group_table(group).get("state", "REMOVED")
    return state
