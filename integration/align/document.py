"""The result for programs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from foredraft.integration.align.plan import AlignPlan
from foredraft.integration.align.result import AlignResult
from foredraft.integration.compare.results.provenance import command_line, environment
from foredraft.integration.embedded.build import Target


def result_document(
    results: Sequence[AlignResult],
    plan: AlignPlan,
    target: Target,
    started_at: datetime,
    *,
    interrupted: bool,
) -> dict[str, Any]:
    """The JSON document: one result per temperature, and what is needed to judge and repeat them.

    Args:
        interrupted: whether something is missing because the user ended the run.
    """
    config = plan.config
    return {
        "results": [result.as_json() for result in results],
        "proposer": config.proposer,
        "draft_model": config.draft.model if config.proposer == "draft" else None,
        "num_draft_tokens": plan.num_draft_tokens,
        "verification_rule": config.verification_rule,
        "workloads": list(plan.workloads),
        "batch_size": plan.batch_size,
        "max_tokens": config.sampling.max_tokens,
        "seconds": plan.seconds,
        "seed": plan.sampling.seed,
        "environment": environment(target),
        "command": command_line(),
        "started_at": started_at.isoformat(timespec="seconds"),
        "interrupted": interrupted,
    }
