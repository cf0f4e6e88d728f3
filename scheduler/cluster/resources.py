"""Whether bundles can ever fit a cluster, and what is missing if not. Pure: no Ray here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from foredraft.scheduler.placement.plan import Bundle, WorkerPlan

Resources = Mapping[str, float]

SHOWN = ("GPU", "CPU", "memory")
GIB = 2**30


@dataclass(frozen=True)
class Node:
    """A node that is alive, with all it has (whoever holds it now)."""

    name: str
    total: Resources
    labels: Mapping[str, str] = field(default_factory=dict)


def bundle_resources(bundle: Bundle) -> dict[str, float]:
    """A bundle under Ray's names; what it does not need is left out, for Ray refuses zeros."""
    wanted = {"GPU": bundle.gpus, "CPU": bundle.cpus, "memory": float(bundle.memory_bytes)}
    return {name: amount for name, amount in wanted.items() if amount > 0}


def shortfall(workers: Mapping[str, WorkerPlan], nodes: Sequence[Node]) -> str | None:
    """Why these workers can never run together on these nodes; ``None`` = nothing says they cannot.

    Args:
        workers: name -> what it needs.
    """
    for name, worker in workers.items():
        if reason := _worker_shortfall(worker, nodes):
            return f"{name}: {reason}; the cluster has {described(nodes)}"
    wanted = _sum(bundle_resources(bundle) for worker in workers.values() for bundle in worker.bundles)
    has = _sum(node.total for node in nodes)
    for resource, amount in wanted.items():
        if amount > has.get(resource, 0.0):
            who = ", ".join(workers)
            return (
                f"{who}: need {shown(resource, amount)} together; the cluster has "
                f"{shown(resource, has.get(resource, 0.0))}: {described(nodes)}"
            )
    return None


def _worker_shortfall(worker: WorkerPlan, nodes: Sequence[Node]) -> str | None:
    for index, bundle in enumerate(worker.bundles):
        wanted = bundle_resources(bundle)
        matching = [node for node in nodes if _has_labels(node, bundle)]
        if not matching:
            labels = ", ".join(f"{key}={value}" for key, value in bundle.node_labels)
            return f"bundle {index} needs a node labelled {labels}"
        if lacking := _lacking(wanted, matching):
            return f"bundle {index} needs {lacking} on one node"
    wanted = dict(_sum(bundle_resources(bundle) for bundle in worker.bundles))
    if worker.strategy == "STRICT_PACK" and (lacking := _lacking(wanted, nodes)):
        return f"its {len(worker.bundles)} bundles need {lacking} on one node"
    if worker.strategy == "STRICT_SPREAD" and len(worker.bundles) > len(nodes):
        return f"its {len(worker.bundles)} bundles need as many nodes"
    return None


def _has_labels(node: Node, bundle: Bundle) -> bool:
    return all(node.labels.get(key) == value for key, value in bundle.node_labels)


def _lacking(wanted: Resources, nodes: Iterable[Node]) -> str | None:
    """What no single node has; all that is wanted where each resource exists, but not together."""
    totals = [node.total for node in nodes]
    if any(all(total.get(name, 0.0) >= amount for name, amount in wanted.items()) for total in totals):
        return None
    nowhere = {
        name: amount
        for name, amount in wanted.items()
        if all(total.get(name, 0.0) < amount for total in totals)
    }
    return shown_all(nowhere or wanted)


def _sum(parts: Iterable[Resources]) -> Counter[str]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)  # type: ignore[arg-type]  # the stubs know counts of whole things only
    return total


def described(nodes: Sequence[Node]) -> str:
    """The nodes and what each has, for a message."""
    if not nodes:
        return "no node"
    each = [
        f"{node.name}: {shown_all({name: node.total.get(name, 0.0) for name in SHOWN})}" for node in nodes
    ]
    more = f" and {len(each) - 8} more" if len(each) > 8 else ""
    return "; ".join(each[:8]) + more


def shown_all(resources: Resources) -> str:
    """Several resources, for a message."""
    return ", ".join(shown(name, amount) for name, amount in resources.items())


def shown(resource: str, amount: float) -> str:
    """One resource, for a message: "2 GPU", "7.5 GiB memory"."""
    return f"{amount / GIB:.4g} GiB memory" if resource == "memory" else f"{amount:g} {resource}"
