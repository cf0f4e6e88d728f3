"""The result for programs: rows, and what is needed to judge and repeat them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from foredraft.integration.compare.offline.measure import MeasuredBlock
from foredraft.integration.compare.offline.open_pairs import block_ratios
from foredraft.integration.compare.plan import Cell, ComparePlan
from foredraft.integration.compare.results.base import Design, HeadToHead
from foredraft.integration.compare.results.changes import changed_facts, changed_options
from foredraft.integration.compare.results.head_to_head import Judging, Met, head_to_head_rows
from foredraft.integration.compare.results.model import ResultDocument, ResultRow
from foredraft.integration.compare.results.provenance import command_line, commit
from foredraft.integration.compare.results.recommendation import Words, recommendation
from foredraft.integration.compare.results.regressions import regressions, unheld
from foredraft.integration.compare.results.rows import overall_rows, result_rows
from foredraft.integration.compare.statistics.looks import LOOKS
from foredraft.integration.compare.variants import BASELINE

PREFIX_CACHE = {
    "embedded": "none: the embedded engine keeps nothing of a prompt after its request has ended",
    "vllm": "vLLM was started without its prefix cache, unless --vllm says otherwise",
}
LAW_UNCHECKED = (
    "equal tokens at temperature 0, and above it where they are promised (float32, point-mass drafts); "
    "elsewhere the law was not checked"
)
LAW_CHECKED = (
    "equal tokens at temperature 0, and above it where they are promised (float32, point-mass drafts); above "
    "temperature 0 the tokens of a configuration against the law of the model, where they are enough"
)


@dataclass(frozen=True)
class RunFacts:
    """How a run went.

    Attributes:
        num_cells: of the plan, those without a block included.
        environment: see ``provenance.environment``.
        seconds: from start to end.
        interrupted: whether the user ended it.
        before: the result to compare with.
        workloads: see ``offline.identity.workload_digests``.
    """

    num_cells: int
    environment: dict[str, Any]
    started_at: datetime
    seconds: float
    interrupted: bool
    before: ResultDocument | None = None
    workloads: Mapping[str, str] = field(default_factory=dict)


def result_document(blocks: Sequence[MeasuredBlock], plan: ComparePlan, facts: RunFacts) -> ResultDocument:
    """Everything that a run has to say."""
    level = plan.interval_level(facts.num_cells)
    rows = result_rows(blocks, plan, level)
    overall = overall_rows(rows, level, plan.min_effect)
    pairs = _pairs(blocks, rows, plan, level)
    before = facts.before
    configs = {name: config.model_dump(mode="json") for name, config in plan.configs.items()}
    return ResultDocument(
        results=rows,
        overall=overall,
        head_to_head=pairs,
        recommendation=recommendation(rows, overall, pairs, offline_words(rows)),
        regressions=None if before is None else regressions(before.results, rows),
        baseline_notes=None if before is None else _notes(before, rows, configs, facts.environment),
        design=design(plan, level),
        configs=configs,
        workloads=dict(facts.workloads),
        environment=facts.environment,
        command=command_line(),
        commit=commit(),
        seed=plan.seed,
        started_at=facts.started_at.isoformat(timespec="seconds"),
        seconds=facts.seconds,
        interrupted=facts.interrupted,
    )


def _notes(
    before: ResultDocument,
    rows: Sequence[ResultRow],
    configs: Mapping[str, Mapping[str, Any]],
    environment: Mapping[str, Any],
) -> list[str]:
    told = changed_options(before.configs, configs) + changed_facts(before.environment, environment)
    return told + unheld(before.results, rows)


def _pairs(
    blocks: Sequence[MeasuredBlock], rows: Sequence[ResultRow], plan: ComparePlan, level: float
) -> list[HeadToHead]:
    def met(row: ResultRow) -> Met:
        cell = Cell(row.workload, row.batch_size, row.temperature, row.arrivals_per_s)
        own = [block for block in blocks if block.cell == cell]
        return Met(row.conditions, lambda one, other: block_ratios(one, own, against=other))

    names = [name for name in plan.configs if name != BASELINE]
    wrong = {row.config for row in rows if row.verdict == "output differs"}
    judging = Judging(level, plan.min_effect, wrong)
    return head_to_head_rows([met(row) for row in rows if row.is_baseline], names, judging)


def offline_words(rows: Sequence[ResultRow]) -> Words:
    """How the advice speaks of configurations: each with its K."""
    most: dict[str, ResultRow] = {}
    for row in rows:
        if row.config != BASELINE:
            most[row.config] = max(most.get(row.config, row), row, key=lambda one: one.num_draft_tokens)
    labels = {
        name: f"{name} with K {'' if row.lengths_chosen else '= '}{row.k}" for name, row in most.items()
    }
    labels[BASELINE] = f"plain decoding ({BASELINE})"
    has_arrivals = any(row.arrivals_per_s is not None for row in rows)
    speed = "the speed (1 / mean latency)" if has_arrivals else "the tokens/s"
    loads = "arrival rates" if has_arrivals else "batch sizes"
    return Words("plain decoding", BASELINE, speed, loads, labels)


def design(plan: ComparePlan, level: float) -> Design:
    """How the figures of a plan come about."""
    is_fixed = plan.repeats is not None
    return Design(
        interval_level=level,
        min_effect=plan.min_effect,
        looks=None if is_fixed else list(LOOKS),
        repeats=plan.repeats,
        budget_s=None if is_fixed else plan.budget_s,
        prefix_cache=PREFIX_CACHE[plan.engine],
        sampled_output=LAW_CHECKED if plan.check_law else LAW_UNCHECKED,
    )
