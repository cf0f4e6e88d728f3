"""A plan for people and for programs."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from foredraft.scheduler.placement.plan import Plan, WorkerPlan

MOST_ROWS = 16


def plan_document(plan: Plan) -> dict[str, Any]:
    """The JSON object: the plan's own fields; see ``placement.plan``."""
    return asdict(plan)


def print_plan(plan: Plan, console: Console, name: str = "") -> None:
    """A table of who goes where, then the reasons.

    Args:
        name: of the variant of a deployment.
    """
    console.print(_table(plan, name))
    for reason in plan.reasons:
        console.print(f"  {escape(reason)}", highlight=False, soft_wrap=True)
    for one in plan.rejected:
        console.print(f"  not {one.strategy}: {escape(one.reason)}", highlight=False, soft_wrap=True)


def _table(plan: Plan, name: str) -> Table:
    strategy = f"{escape(name)}: {plan.strategy}" if name else plan.strategy
    title = f"{strategy}: {len(plan.replicas)} replicas, {plan.tokens_per_s:.0f} tokens/s predicted"
    table = Table(title=title, title_justify="left")
    for column in ("node", "worker", "group", "bundle", "memory", "draft on"):
        table.add_column(column)
    rows = Counter(_rows(plan))
    for row, number in list(rows.items())[:MOST_ROWS]:
        node, worker, *rest = row
        table.add_row(escape(node), f"{number} {worker}{'s' if number > 1 else ''}", *map(escape, rest))
    left = len(rows) - MOST_ROWS
    if left > 0:
        table.add_row(f"... {left} more", *[""] * 5)
    return table


def _rows(plan: Plan) -> list[tuple[str, ...]]:
    rows = []
    for replica in plan.replicas:
        draft = None if replica.draft is None else plan.drafts[replica.draft]
        rows.append((*_row(replica.target), _nodes(draft) if draft else "the same process"))
    return rows + [(*_row(draft), "") for draft in plan.drafts]


def _row(worker: WorkerPlan) -> tuple[str, ...]:
    first = worker.bundles[0]
    device = f"{first.gpus:g} GPU, {first.cpus:g} CPU" if first.gpus else f"{first.cpus:g} CPU"
    parts = f"{len(worker.bundles)} x " if len(worker.bundles) > 1 else ""
    share = (
        f"{worker.gpu_memory_fraction:.0%} of a GPU" if first.gpus else f"{first.memory_bytes / 1e9:.1f} GB"
    )
    return _nodes(worker), worker.role, worker.strategy, f"{parts}{device}", share


def _nodes(worker: WorkerPlan) -> str:
    return ", ".join(dict.fromkeys(bundle.node for bundle in worker.bundles))
