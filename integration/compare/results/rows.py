"""From measured blocks to the rows of the result: one per proposer and cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from foredraft.integration.compare.offline.closed_loop import BlockRun
from foredraft.integration.compare.offline.measure import MeasuredBlock
from foredraft.integration.compare.offline.output_check import Difference, OutputsEqual, judge
from foredraft.integration.compare.plan import BASELINE, Cell


@dataclass(frozen=True)
class FirstDifference:
    """The difference from the baseline that decided ``outputs_equal``; see ``output_check.Difference``."""

    prompt_id: str
    position: int
    logit_gap: float | None
    rounding: float | None


@dataclass(frozen=True)
class ResultRow:
    """What one proposer did in one cell.

    Attributes:
        num_draft_tokens: drafted per step at most.
        tokens_per_s: output tokens over wall time, reading the prompts included.
        speedup: median over the blocks of the paired ratios of tokens/s to the baseline's.
        acceptance_rate: accepted / drafted; ``None`` when nothing was drafted.
        acceptance_length: tokens per target pass of a request, the recovered or bonus one included.
        outputs_equal: against the baseline; ``None`` where equal tokens are not promised.
        time_split: shares of the engine's time, per phase; ``None`` when none was measured.
    """

    proposer: str
    workload: str
    batch_size: int
    temperature: float
    num_draft_tokens: int
    tokens_per_s: float
    speedup: float
    acceptance_rate: float | None
    acceptance_length: float
    outputs_equal: OutputsEqual | None
    first_difference: FirstDifference | None
    num_prompts: int
    num_blocks: int
    seconds: float
    drafted_tokens: int
    accepted_tokens: int
    emitted_tokens: int
    proposer_faults: int
    time_split: dict[str, float] | None

    def as_json(self) -> dict[str, Any]:
        """The row for ``json.dumps``."""
        return asdict(self)


def result_rows(blocks: Sequence[MeasuredBlock]) -> list[ResultRow]:
    """Rows in the order of the cells, within a cell in the order of the proposers."""
    by_cell: dict[Cell, list[MeasuredBlock]] = {}
    for block in blocks:
        by_cell.setdefault(block.cell, []).append(block)
    return [
        _row(name, cell, cell_blocks)
        for cell, cell_blocks in by_cell.items()
        for name in cell_blocks[0].differences
    ]


def paired_speedup(runs: Sequence[BlockRun], baseline_runs: Sequence[BlockRun]) -> float:
    """Median of the block-by-block ratios of tokens/s."""
    pairs = zip(runs, baseline_runs, strict=True)
    return median(run.tokens_per_s / baseline.tokens_per_s for run, baseline in pairs)


def time_split(runs: Sequence[BlockRun]) -> dict[str, float] | None:
    """Shares of the engine's steps: each phase, and the rest (scheduling, bookkeeping, text)."""
    total = sum(run.phase_seconds["total"] for run in runs)
    if total == 0:
        return None
    phases = [phase for phase in runs[0].phase_seconds if phase != "total"]
    shares = {phase: sum(run.phase_seconds[phase] for run in runs) / total for phase in phases}
    return shares | {"rest": 1 - sum(shares.values())}


def _row(name: str, cell: Cell, blocks: Sequence[MeasuredBlock]) -> ResultRow:
    runs = [block.runs[name] for block in blocks]
    seconds = sum(run.seconds for run in runs)
    drafted = sum(run.num_drafted_tokens for run in runs)
    accepted = sum(run.num_accepted_tokens for run in runs)
    emitted = sum(run.num_emitted_tokens for run in runs)
    outputs_equal, first_difference = _outputs_equal(name, blocks)
    return ResultRow(
        proposer=name,
        workload=cell.workload,
        batch_size=cell.batch_size,
        temperature=cell.temperature,
        num_draft_tokens=runs[0].num_draft_tokens,
        tokens_per_s=emitted / seconds,
        speedup=paired_speedup(runs, [block.runs[BASELINE] for block in blocks]),
        acceptance_rate=accepted / drafted if drafted else None,
        acceptance_length=emitted / sum(run.num_passes for run in runs),
        outputs_equal=outputs_equal,
        first_difference=first_difference,
        num_prompts=sum(len(block.prompt_ids) for block in blocks),
        num_blocks=len(blocks),
        seconds=seconds,
        drafted_tokens=drafted,
        accepted_tokens=accepted,
        emitted_tokens=emitted,
        proposer_faults=sum(run.num_proposer_faults for run in runs),
        time_split=time_split(runs),
    )


def _outputs_equal(
    name: str, blocks: Sequence[MeasuredBlock]
) -> tuple[OutputsEqual | None, FirstDifference | None]:
    differences: list[Difference | None] = []
    for block in blocks:
        found = block.differences[name]
        if found is None:
            return None, None
        differences += found
    verdict = judge(differences)
    if verdict.difference is None or verdict.prompt_number is None:
        return verdict.outputs_equal, None
    prompt_ids = [prompt_id for block in blocks for prompt_id in block.prompt_ids]
    where = verdict.difference
    first = FirstDifference(
        prompt_ids[verdict.prompt_number], where.position, where.logit_gap, where.rounding
    )
    return verdict.outputs_equal, first
