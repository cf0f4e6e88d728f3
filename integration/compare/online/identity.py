"""What an online run measures: two runs that agree in it may share a journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from foredraft.integration.compare.online.plan import OnlinePlan
from foredraft.integration.compare.online.requests import digests


def measured_online(plan: OnlinePlan, models: Mapping[str, str]) -> dict[str, Any]:
    """What must be the same; the budget is not part of it, nor is any key."""
    return {
        "servers": [[one.name, one.url, models[one.name]] for one in plan.endpoints],
        "workloads": digests(plan.requests),
        "loads": [asdict(load) for load in plan.loads],
        "temperatures": list(plan.temperatures),
        "min_effect": plan.min_effect,
        "seed": plan.seed,
    }
