"""A comparison from plan to blocks: which cell is served next, and when it is enough."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from foredraft.integration.compare.clock import Clock
from foredraft.integration.compare.offline.blocks import block_arrivals, blocks_in_passes, cell_blocks
from foredraft.integration.compare.offline.measure import Bench, MeasuredBlock
from foredraft.integration.compare.offline.open_pairs import hardly_checked_names, open_names
from foredraft.integration.compare.offline.prompts import CompareRequest, Prompt
from foredraft.integration.compare.plan import Cell, ComparePlan
from foredraft.integration.compare.progress import ProgressLine
from foredraft.integration.compare.statistics.looks import LOOKS
from foredraft.integration.compare.variants import BASELINE
from foredraft.integration.errors import UserError

Finished = Mapping[tuple[Cell, int], MeasuredBlock]
"""Blocks of an earlier run, by cell and number."""


@dataclass
class _CellState:
    """How far a cell is. ``open_names`` are the configurations that still take part, beside the baseline."""

    cell: Cell
    requests: Iterator[list[CompareRequest]]
    looks: Sequence[int]
    open_names: list[str]
    blocks: list[MeasuredBlock] = field(default_factory=list)
    warm: bool = False

    @property
    def expected_seconds(self) -> float:
        """How long the next block will take, going by the last one."""
        return sum(run.seconds for run in self.blocks[-1].runs.values()) if self.blocks else 0.0


def run_comparison(
    bench: Bench, prompts: Mapping[str, Sequence[Prompt]], finished: Finished, progress: ProgressLine
) -> Iterator[MeasuredBlock]:
    """Yield the blocks as they are completed, those of an earlier run included.

    The cells take turns, block by block and in random order, until no verdict is open, the looks are used
    up, or the next block would not end within the budget. In a fixed design each cell has one look.

    Args:
        prompts: per workload.
    """
    plan = bench.plan
    states = _states(plan, prompts)
    level = plan.interval_level(len(states))
    budget_s = plan.budget_s if plan.repeats is None else None
    used_before = sum(run.seconds for block in finished.values() for run in block.runs.values())
    clock = Clock(budget_s, used_before, sum(state.looks[-1] for state in states))
    for number in range(max(state.looks[-1] for state in states)):
        random.Random(f"{plan.seed} cells {number}").shuffle(states)
        for state in states:
            if not state.open_names or number >= state.looks[-1]:
                continue
            requests = next(state.requests)
            block = finished.get((state.cell, number)) or _measure(bench, state, requests, clock)
            if block is None:
                return
            state.blocks.append(block)
            if len(state.blocks) in state.looks:
                hardly_checked = hardly_checked_names(block for each in states for block in each.blocks)
                state.open_names = open_names(
                    state.blocks, state.open_names, level, plan.min_effect, hardly_checked
                )
            num_open = sum(bool(each.open_names) for each in states)
            clock.count_block()
            progress.show(clock.seconds_used, clock.seconds_left, num_open)
            yield block


def check_arrivals_fit(plan: ComparePlan, prompts: Mapping[str, Sequence[Prompt]]) -> None:
    """Refuse arrivals at rates of which the first block of a cell takes more than the budget.

    Raises:
        UserError: there is such a cell.
    """
    if plan.repeats is not None:
        return
    for cell in plan.cells(prompts):
        requests = next(cell_blocks(plan, cell, prompts[cell.workload]))
        arrivals = block_arrivals(plan, cell, 0, len(requests)) or [0.0]
        needed = arrivals[-1] * len(plan.configs)
        if needed > plan.budget_s:
            raise UserError(
                f"--budget: a block at --rates {cell.arrivals_per_s:g} takes {needed:.0f} s for all "
                f"configurations, more than {plan.budget_s:g}; raise it, or the rate"
            )


def _states(plan: ComparePlan, prompts: Mapping[str, Sequence[Prompt]]) -> list[_CellState]:
    names = [name for name in plan.configs if name != BASELINE]
    states = []
    for cell in plan.cells(prompts):
        chosen = prompts[cell.workload]
        looks = LOOKS if plan.repeats is None else (blocks_in_passes(cell, chosen, plan.repeats),)
        # With nothing to compare the baseline is measured by itself, once.
        states.append(_CellState(cell, cell_blocks(plan, cell, chosen), looks, names or [BASELINE]))
    return states


def _measure(
    bench: Bench, state: _CellState, requests: Sequence[CompareRequest], clock: Clock
) -> MeasuredBlock | None:
    """The next block of a cell; ``None`` if the budget does not hold it."""
    names = {BASELINE, *state.open_names}
    arrivals = block_arrivals(bench.plan, state.cell, len(state.blocks), len(requests)) or [0.0]
    if not clock.allows(max(state.expected_seconds, arrivals[-1] * len(names))):
        return None
    if not state.warm:
        bench.warm_up(requests, state.cell.batch_size)
        state.warm = True
    return bench.measure(state.cell, len(state.blocks), requests, names)
