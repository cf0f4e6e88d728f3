"""Drive the servers block by block until each verdict is clear, the budget is spent, or a server is gone."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from foredraft.integration.compare.online.client import OnlineRequest, Reply, send
from foredraft.integration.compare.online.endpoint import Endpoint
from foredraft.integration.compare.online.load import Served, serve_block
from foredraft.integration.compare.online.plan import OnlineCell, OnlinePlan, cell_requests
from foredraft.integration.compare.online.server_metrics import acceptance_between, read_counts
from foredraft.integration.compare.statistics.estimate import RatioEstimate, estimate_ratio
from foredraft.integration.compare.statistics.looks import LOOKS
from foredraft.integration.compare.statistics.verdict import is_clear

METRICS_TIMEOUT_S = 5.0
WARM_UP_TOKENS = 8

MAX_FAILED_BLOCKS = 3
"""In a row: then a server takes no further part in the cell."""


@dataclass(frozen=True)
class EndpointRun:
    """One block at one server.

    Attributes:
        drafts: (drafted, accepted) tokens by its own count; ``None`` = unknown.
    """

    served: Served
    drafts: tuple[float, float] | None

    @property
    def failures(self) -> list[str]:
        return [reply.error for reply in self.served.replies if reply.error is not None]

    @property
    def num_tokens(self) -> int:
        return sum(reply.num_tokens for reply in self.served.replies if reply.error is None)

    def speed(self, *, by_latency: bool) -> float:
        """Tokens/s; under random arrivals, which fix the tokens/s, requests per second of latency."""
        return 1 / fmean(self.served.latencies) if by_latency else self.num_tokens / self.served.seconds


@dataclass(frozen=True)
class OnlineBlock:
    """A block that the servers have had; a run with a failure is kept and not compared."""

    cell: OnlineCell
    prompt_ids: list[str]
    runs: dict[str, EndpointRun]


@dataclass
class _Cell:
    cell: OnlineCell
    requests: Iterator[list[OnlineRequest]]
    open_names: list[str]
    blocks: list[OnlineBlock] = field(default_factory=list)


def speedup(name: str, baseline: str, blocks: Sequence[OnlineBlock]) -> RatioEstimate | None:
    """Speed over the baseline's, from the blocks in which neither failed; ``None`` without one."""
    ratios = []
    for block in blocks:
        own, plain = block.runs.get(name), block.runs.get(baseline)
        if own and plain and not own.failures and not plain.failures:
            by_latency = block.cell.load.arrivals_per_s is not None
            ratios.append(math.log(own.speed(by_latency=by_latency) / plain.speed(by_latency=by_latency)))
    return estimate_ratio(ratios) if ratios else None


def measure_online(
    plan: OnlinePlan, models: Mapping[str, str], show: Callable[[float, float, int], None]
) -> Iterator[OnlineBlock]:
    """Yield block after block.

    Args:
        models: name of the model at each server.
        show: told the seconds used, the seconds left and the number of open cells.
    """
    started = time.monotonic()
    names = [endpoint.name for endpoint in plan.endpoints[1:]]
    states = [_Cell(cell, cell_requests(plan, cell), list(names)) for cell in plan.cells()]
    for number in range(LOOKS[-1]):
        random.Random(repr((plan.seed, "cells", number))).shuffle(states)
        for state in states:
            if not state.open_names:
                continue
            requests = next(state.requests)
            used = time.monotonic() - started
            if used + _expected_seconds(state) > plan.budget_s:
                return
            if number == 0:
                _warm_up(plan, models, requests)
            state.blocks.append(_measure(plan, models, state, number, requests))
            _close(plan, state)
            used = time.monotonic() - started
            show(used, max(plan.budget_s - used, 0), sum(bool(each.open_names) for each in states))
            yield state.blocks[-1]


def _expected_seconds(state: _Cell) -> float:
    return sum(run.served.seconds for run in state.blocks[-1].runs.values()) if state.blocks else 0.0


def _warm_up(plan: OnlinePlan, models: Mapping[str, str], requests: Sequence[OnlineRequest]) -> None:
    """A short request each, so that what happens once is not measured."""
    for endpoint in plan.endpoints:
        short = replace(requests[0], max_tokens=WARM_UP_TOKENS)
        send(endpoint, models[endpoint.name], short, plan.timeout_s)


def _measure(
    plan: OnlinePlan,
    models: Mapping[str, str],
    state: _Cell,
    number: int,
    requests: Sequence[OnlineRequest],
) -> OnlineBlock:
    taking_part = {plan.endpoints[0].name, *state.open_names}
    runs = {
        endpoint.name: _run(plan, endpoint, models[endpoint.name], state.cell, number, requests)
        for endpoint in plan.turns(state.cell, number)
        if endpoint.name in taking_part
    }
    ordered = {one.name: runs[one.name] for one in plan.endpoints if one.name in runs}
    return OnlineBlock(state.cell, [request.prompt_id for request in requests], ordered)


def _run(
    plan: OnlinePlan,
    endpoint: Endpoint,
    model: str,
    cell: OnlineCell,
    number: int,
    requests: Sequence[OnlineRequest],
) -> EndpointRun:
    def send_one(request: OnlineRequest) -> Reply:
        return send(endpoint, model, request, plan.timeout_s)

    before = read_counts(endpoint, METRICS_TIMEOUT_S)
    served = serve_block(send_one, requests, cell.load, plan.seed + number)
    after = read_counts(endpoint, METRICS_TIMEOUT_S) if before else None
    return EndpointRun(served, acceptance_between(before, after))


def _close(plan: OnlinePlan, state: _Cell) -> None:
    """Take those out that are judged or gone; without the baseline nobody can be compared."""
    baseline = plan.endpoints[0].name
    if _is_gone(baseline, state.blocks):
        state.open_names = []
        return
    state.open_names = [name for name in state.open_names if not _is_gone(name, state.blocks)]
    if len(state.blocks) in LOOKS:
        state.open_names = [
            name for name in state.open_names if not _is_judged(speedup(name, baseline, state.blocks), plan)
        ]


def _is_judged(ratio: RatioEstimate | None, plan: OnlinePlan) -> bool:
    return ratio is not None and is_clear(ratio.interval(plan.interval_level), plan.min_effect)


def _is_gone(name: str, blocks: Sequence[OnlineBlock]) -> bool:
    newest = [block.runs[name] for block in blocks[-MAX_FAILED_BLOCKS:] if name in block.runs]
    return len(newest) == MAX_FAILED_BLOCKS and all(run.failures for run in newest)
