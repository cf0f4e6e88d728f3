"""From measured blocks to the rows of the result: one per configuration and cell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from foredraft.integration.compare.offline.law_check import ALARM, unevenness
from foredraft.integration.compare.offline.measure import MeasuredBlock
from foredraft.integration.compare.offline.open_pairs import speedup
from foredraft.integration.compare.offline.output_check import Difference, OutputsEqual, judge
from foredraft.integration.compare.plan import Cell, ComparePlan
from foredraft.integration.compare.results.figures import (
    first_token_times,
    ideal_speedup,
    per_token_times,
    position_acceptance,
    time_split,
)
from foredraft.integration.compare.results.model import FirstDifference, OverallRow, ResultRow
from foredraft.integration.compare.results.overall import speedup_over, workload_groups
from foredraft.integration.compare.statistics.verdict import speed_verdict
from foredraft.integration.compare.variants import BASELINE
from foredraft.integration.draft_lengths import adapts


def result_rows(blocks: Sequence[MeasuredBlock], plan: ComparePlan, level: float) -> list[ResultRow]:
    """Rows in the order of the plan: cell by cell, within a cell the baseline first.

    Args:
        level: of the intervals.
    """
    by_cell: dict[Cell, list[MeasuredBlock]] = {}
    for block in blocks:
        by_cell.setdefault(block.cell, []).append(block)
    places = _law_places(blocks)
    return [
        _row(name, cell, chosen, plan, level, places.get((name, cell.temperature)))
        for cell in sorted(by_cell, key=lambda cell: _place(cell, plan))
        for name in plan.configs
        if (chosen := [block for block in by_cell[cell] if name in block.runs])
    ]


def overall_rows(rows: Sequence[ResultRow], level: float, min_effect: float) -> list[OverallRow]:
    """Per configuration, batch size and temperature over the workloads, where there are several."""
    return [
        OverallRow(
            config=group[0].config,
            batch_size=group[0].batch_size,
            arrivals_per_s=group[0].arrivals_per_s,
            temperature=group[0].temperature,
            num_workloads=len(group),
            **speedup_over(group, level, min_effect),
        )
        for group in workload_groups(rows)
    ]


def _place(cell: Cell, plan: ComparePlan) -> tuple[int, str, int, int]:
    """Where a cell comes in the result; a workload may be one category of a workload of the plan."""
    whole = next(name for name in plan.workloads if f"{cell.workload}/".startswith(f"{name}/"))
    return (
        plan.workloads.index(whole),
        cell.workload,
        plan.loads.index((cell.batch_size, cell.arrivals_per_s)),
        plan.temperatures.index(cell.temperature),
    )


def _law_places(blocks: Sequence[MeasuredBlock]) -> dict[tuple[str, float], list[float]]:
    """Per configuration and temperature, over all cells: a fault in a few tokens needs many to be seen."""
    places: dict[tuple[str, float], list[float]] = {}
    for block in blocks:
        for name, found in block.places.items():
            places.setdefault((name, block.cell.temperature), []).extend(found)
    return places


def _row(
    name: str,
    cell: Cell,
    blocks: Sequence[MeasuredBlock],
    plan: ComparePlan,
    level: float,
    law_places: Sequence[float] | None,
) -> ResultRow:
    runs = [block.runs[name] for block in blocks]
    plain = [block.runs[BASELINE] for block in blocks]
    seconds = sum(run.seconds for run in runs)
    drafted = sum(run.num_drafted_tokens for run in runs)
    accepted = sum(run.num_accepted_tokens for run in runs)
    emitted = sum(run.num_emitted_tokens for run in runs)
    outputs_equal, first_difference = _outputs_equal(name, blocks)
    ratio = speedup(name, blocks)
    interval = ratio.interval(level) if name != BASELINE else (1.0, 1.0)
    law_p_value = unevenness(law_places) if law_places is not None else None
    wrong = outputs_equal is False or (law_p_value is not None and law_p_value < ALARM)
    speed = speed_verdict(interval, plan.min_effect)
    ideal = ideal_speedup(runs, plain) if name != BASELINE else None
    return ResultRow(
        config=name,
        proposer=plan.configs[name].proposer,
        workload=cell.workload,
        batch_size=cell.batch_size,
        arrivals_per_s=cell.arrivals_per_s,
        temperature=cell.temperature,
        num_draft_tokens=runs[0].num_draft_tokens,
        lengths_chosen=runs[0].num_draft_tokens > 0 and adapts(plan.configs[name]),
        tokens_per_s=emitted / seconds,
        speedup=ratio.ratio,
        speedup_low=interval[0] if interval else None,
        speedup_high=interval[1] if interval else None,
        standard_error=ratio.standard_error,
        freedom=ratio.freedom,
        verdict=None if name == BASELINE else "output differs" if wrong else speed,
        time_to_first_token_s=first_token_times(runs),
        time_per_output_token_s=per_token_times(runs),
        acceptance_rate=accepted / drafted if drafted else None,
        acceptance_length=emitted / sum(run.num_passes for run in runs),
        position_acceptance=position_acceptance(runs),
        drafted_tokens=drafted,
        accepted_tokens=accepted,
        wasted_tokens=drafted - accepted,
        emitted_tokens=emitted,
        proposer_faults=sum(run.num_proposer_faults for run in runs),
        outputs_equal=outputs_equal,
        first_difference=first_difference,
        law_p_value=law_p_value,
        law_tokens=None if law_places is None else len(law_places),
        ideal_speedup=ideal,
        share_of_ideal=ratio.ratio / ideal if ideal else None,
        time_split=time_split(runs),
        memory_bytes=_most(run.memory_bytes for run in runs),
        num_prompts=sum(len(block.prompt_ids) for block in blocks),
        num_blocks=len(blocks),
        seconds=seconds,
    )


def _most(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return max(known, default=None)


def _outputs_equal(
    name: str, blocks: Sequence[MeasuredBlock]
) -> tuple[OutputsEqual | None, FirstDifference | None]:
    differences: list[Difference | None] = []
    for block in blocks:
        found = block.differences[name]
        if found is None:
            return None, None
        differences += found
    judged = judge(differences)
    if judged.difference is None or judged.prompt_number is None:
        return judged.outputs_equal, None
    prompt_ids = [prompt_id for block in blocks for prompt_id in block.prompt_ids]
    where = judged.difference
    first = FirstDifference(
        prompt_id=prompt_ids[judged.prompt_number],
        position=where.position,
        logit_gap=where.logit_gap,
        rounding=where.rounding,
    )
    return judged.outputs_equal, first
