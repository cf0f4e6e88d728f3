"""A comparison from plan to blocks: which cell is served next, and when it is enough."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from foredraft.integration.compare.offline.blocks import blocks_in_passes, cell_blocks
from foredraft.integration.compare.offline.measure import Bench, MeasuredBlock
from foredraft.integration.compare.offline.open_pairs import open_names
from foredraft.integration.compare.offline.progress import ProgressLine
from foredraft.integration.compare.offline.prompts import CompareRequest, Prompt
from foredraft.integration.compare.plan import Cell, ComparePlan
from foredraft.integration.compare.statistics.looks import LOOKS
from foredraft.integration.compare.variants import BASELINE

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
    clock = _Clock(plan, finished, sum(state.looks[-1] for state in states))
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
                state.open_names = open_names(state.blocks, state.open_names, level, plan.min_effect)
            num_open = sum(bool(each.open_names) for each in states)
            clock.count_block()
            progress.show(clock.seconds_used, clock.seconds_left, num_open)
            yield block


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
    bench: Bench, state: _CellState, requests: Sequence[CompareRequest], clock: _Clock
) -> MeasuredBlock | None:
    """The next block of a cell; ``None`` if the budget does not hold it."""
    if not clock.allows(state.expected_seconds):
        return None
    if not state.warm:
        bench.warm_up(requests, state.cell.batch_size)
        state.warm = True
    return bench.measure(state.cell, len(state.blocks), requests, {BASELINE, *state.open_names})


class _Clock:
    """The budget; what an earlier run has used of it is used. A fixed design has no budget."""

    def __init__(self, plan: ComparePlan, finished: Finished, max_blocks: int) -> None:
        self._budget_s = plan.budget_s if plan.repeats is None else None
        self._started = time.monotonic()
        self._used_before = sum(run.seconds for block in finished.values() for run in block.runs.values())
        self._max_blocks = max_blocks
        self._num_blocks = 0

    def count_block(self) -> None:
        """One more block is done."""
        self._num_blocks += 1

    @property
    def seconds_used(self) -> float:
        return self._used_before + time.monotonic() - self._started

    @property
    def seconds_left(self) -> float:
        """At most, under a budget; else going by the blocks so far."""
        if self._budget_s is not None:
            return max(self._budget_s - self.seconds_used, 0)
        return self.seconds_used / self._num_blocks * (self._max_blocks - self._num_blocks)

    def allows(self, seconds: float) -> bool:
        """Whether what takes so long still fits."""
        return self._budget_s is None or self.seconds_used + seconds <= self._budget_s
