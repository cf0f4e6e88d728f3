"""What a run measures: two runs that agree in it may share a journal."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from foredraft.integration.compare.offline.prompts import Prompt
from foredraft.integration.compare.plan import ComparePlan


def measured_what(
    plan: ComparePlan, prompts: Mapping[str, Sequence[Prompt]], environment: Mapping[str, Any]
) -> dict[str, Any]:
    """What two runs must have in common for their blocks to belong together; the budget is not part of it."""
    return {
        "configs": {name: config.model_dump(mode="json") for name, config in plan.configs.items()},
        "prompts": {
            name: [[one.prompt_id, *one.token_ids] for one in chosen] for name, chosen in prompts.items()
        },
        "batch_sizes": list(plan.batch_sizes),
        "rates": list(plan.rates),
        "temperatures": list(plan.temperatures),
        "repeats": plan.repeats,
        "min_effect": plan.min_effect,
        "check_law": plan.check_law,
        "vllm_options": dict(plan.vllm_options),
        "seed": plan.seed,
        "environment": dict(environment),
    }


def workload_digests(plan: ComparePlan, prompts: Mapping[str, Sequence[Prompt]]) -> dict[str, str]:
    """Per workload a fingerprint of all that is asked, but for temperatures and seeds: equal ones, equal
    requests."""
    sampling = plan.base.sampling.model_dump(mode="json", exclude={"temperature", "seed"})
    return {
        name: hashlib.sha256(
            repr([sampling, *((one.prompt_id, one.token_ids) for one in chosen)]).encode()
        ).hexdigest()
        for name, chosen in prompts.items()
    }
