"""Drive the servers block by block until each verdict is clear, the budget is spent, or a server is gone."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from foredraft.integration.compare.clock import Clock
from foredraft.integration.compare.online.blocks import OnlineBlock, speedup
from foredraft.integration.compare.online.client import OnlineRequest
from foredraft.integration.compare.online.load import arrival_times
from foredraft.integration.compare.online.measure import Driver
from foredraft.integration.compare.online.plan import OnlineCell, OnlinePlan, cell_requests
from foredraft.integration.compare.progress import ProgressLine
from foredraft.integration.compare.statistics.estimate import RatioEstimate
from foredraft.integration.compare.statistics.looks import LOOKS
from foredraft.integration.compare.statistics.verdict import is_clear

MAX_FAILED_BLOCKS = 3
"""In a row: then a server takes no further part in the cell."""

Finished = Mapping[tuple[OnlineCell, int], OnlineBlock]
"""Blocks of an earlier run, by cell and number."""


@dataclass
class _CellState:
    """How far a cell is. ``refused``: prompts that a server did not take; nobody is given them again."""

    cell: OnlineCell
    requests: Iterator[list[OnlineRequest]]
    num_prompts: int
    open_names: list[str]
    blocks: list[OnlineBlock] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    warm: bool = False

    def next_requests(self) -> list[OnlineRequest]:
        """Those of the next block; none are left once all prompts were refused."""
        while len(self.refused) < self.num_prompts:
            kept = [one for one in next(self.requests) if one.prompt_id not in self.refused]
            if kept:
                return kept
        return []


def run_online_comparison(
    driver: Driver, finished: Finished, progress: ProgressLine
) -> Iterator[OnlineBlock]:
    """Yield block after block, those of an earlier run included; the cells take turns."""
    plan = driver.plan
    states = _states(plan)
    clock = Clock(plan.budget_s, sum(block.seconds for block in finished.values()), LOOKS[-1] * len(states))
    for number in range(LOOKS[-1]):
        random.Random(repr((plan.seed, "cells", number))).shuffle(states)
        for state in states:
            if not state.open_names:
                continue
            requests = state.next_requests()
            if not requests:
                state.open_names = []
                continue
            block = finished.get((state.cell, number)) or _measure(driver, state, requests, clock)
            if block is None:
                return
            _take(plan, state, block)
            progress.show(
                clock.seconds_used, clock.seconds_left, sum(bool(each.open_names) for each in states)
            )
            yield block


def _states(plan: OnlinePlan) -> list[_CellState]:
    names = [endpoint.name for endpoint in plan.endpoints[1:]]
    return [
        _CellState(
            cell,
            cell_requests(plan, cell),
            len({one.prompt_id for one in plan.requests[cell.workload]}),
            list(names),
        )
        for cell in plan.cells()
    ]


def _measure(
    driver: Driver, state: _CellState, requests: Sequence[OnlineRequest], clock: Clock
) -> OnlineBlock | None:
    """The next block of a cell; ``None`` if the budget does not hold it."""
    names = {driver.plan.baseline, *state.open_names}
    arrivals = arrival_times(state.cell.load, requests, driver.plan.seed + len(state.blocks))
    expected = state.blocks[-1].seconds if state.blocks else 0.0
    expected = max(expected, arrivals[-1] * len(names))
    if not clock.allows(expected):
        return None
    # A block may take longer than the one before it, but a server that hangs does not hold the run.
    deadline = time.perf_counter() + max(clock.seconds_left, 2 * expected)
    if not state.warm:
        driver.warm_up(requests, deadline)
        state.warm = True
    return driver.measure(state.cell, len(state.blocks), requests, names, deadline)


def _take(plan: OnlinePlan, state: _CellState, block: OnlineBlock) -> None:
    """Add the block, and take those out that are judged or gone; nobody is compared without the baseline."""
    state.blocks.append(block)
    state.refused |= block.refused
    if _is_gone(plan.baseline, state.blocks):
        state.open_names = []
        return
    state.open_names = [name for name in state.open_names if not _is_gone(name, state.blocks)]
    if len(state.blocks) in LOOKS:
        state.open_names = [
            name
            for name in state.open_names
            if not _is_judged(speedup(name, plan.baseline, state.blocks), plan)
        ]


def _is_judged(ratio: RatioEstimate | None, plan: OnlinePlan) -> bool:
    return ratio is not None and is_clear(ratio.interval(plan.interval_level), plan.min_effect)


def _is_of_use(block: OnlineBlock, name: str) -> bool:
    """Whether it can be compared, or could but for prompts that are given to nobody again."""
    failures = block.runs[name].failures
    if failures:
        return len(failures) == block.runs[name].num_refused
    return block.speed(name) is not None


def _is_gone(name: str, blocks: Sequence[OnlineBlock]) -> bool:
    newest = [_is_of_use(block, name) for block in blocks[-MAX_FAILED_BLOCKS:] if name in block.runs]
    return len(newest) == MAX_FAILED_BLOCKS and not any(newest)
