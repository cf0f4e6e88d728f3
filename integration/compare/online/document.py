"""The result of an online comparison for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from foredraft.integration.compare.online.blocks import OnlineBlock, log_ratios
from foredraft.integration.compare.online.model import OnlineDocument, OnlineRow
from foredraft.integration.compare.online.plan import OnlineCell, OnlinePlan
from foredraft.integration.compare.online.requests import digests
from foredraft.integration.compare.online.rows import online_overall_rows, online_rows
from foredraft.integration.compare.results.base import Design, HeadToHead
from foredraft.integration.compare.results.head_to_head import Judging, Met, head_to_head_rows
from foredraft.integration.compare.results.provenance import command_line, commit, machine
from foredraft.integration.compare.results.recommendation import Words, recommendation
from foredraft.integration.compare.results.regressions import regressions, unheld
from foredraft.integration.compare.statistics.looks import LOOKS

CHECKED = "the law was not checked; at 0 texts were compared, which rounding may change on a server"
PREFIX_CACHE = "as each server keeps it: start all with or all without"


@dataclass(frozen=True)
class OnlineFacts:
    """How a run went.

    Attributes:
        models: name of the model at each server.
        seconds: from start to end.
        before: the result to compare with.
    """

    models: Mapping[str, str]
    started_at: datetime
    seconds: float
    interrupted: bool
    before: OnlineDocument | None = None


def online_document(blocks: Sequence[OnlineBlock], plan: OnlinePlan, facts: OnlineFacts) -> OnlineDocument:
    """Everything that a run has to say."""
    rows = online_rows(blocks, plan, facts.models)
    overall = online_overall_rows(rows, plan.interval_level, plan.min_effect)
    pairs = _pairs(blocks, rows, plan)
    return OnlineDocument(
        results=rows,
        overall=overall,
        head_to_head=pairs,
        recommendation=recommendation(rows, overall, pairs, _words(plan)),
        regressions=None if facts.before is None else regressions(facts.before.results, rows),
        baseline_notes=None if facts.before is None else unheld(facts.before.results, rows),
        design=_design(plan),
        max_tokens=plan.max_tokens,
        workloads=digests(plan.requests),
        environment=machine(),
        command=command_line(),
        commit=commit(),
        seed=plan.seed,
        started_at=facts.started_at.isoformat(timespec="seconds"),
        seconds=facts.seconds,
        interrupted=facts.interrupted,
    )


def _pairs(blocks: Sequence[OnlineBlock], rows: Sequence[OnlineRow], plan: OnlinePlan) -> list[HeadToHead]:
    def met(row: OnlineRow) -> Met:
        cell = OnlineCell(row.workload, row.as_load, row.temperature)
        own = [block for block in blocks if block.cell == cell]
        return Met(row.conditions, lambda one, other: log_ratios(one, other, own))

    names = [endpoint.name for endpoint in plan.endpoints[1:]]
    judging = Judging(plan.interval_level, plan.min_effect)
    return head_to_head_rows([met(row) for row in rows if row.is_baseline], names, judging)


def _words(plan: OnlinePlan) -> Words:
    has_arrivals = all(load.has_arrivals for load in plan.loads)
    speed = "the speed (1 / mean latency)" if has_arrivals else "the tokens/s"
    return Words(f"{plan.baseline} (the first server)", plan.baseline, speed, "loads")


def _design(plan: OnlinePlan) -> Design:
    return Design(
        interval_level=plan.interval_level,
        min_effect=plan.min_effect,
        looks=list(LOOKS),
        repeats=None,
        budget_s=plan.budget_s,
        prefix_cache=PREFIX_CACHE,
        sampled_output=CHECKED,
    )
