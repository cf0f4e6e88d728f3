"""What an online comparison measures."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from foredraft.integration.compare.load import REQUESTS_PER_ARRIVALS, Load
from foredraft.integration.compare.offline.blocks import cut_blocks
from foredraft.integration.compare.online.client import OnlineRequest
from foredraft.integration.compare.online.endpoint import Endpoint
from foredraft.integration.compare.statistics.looks import run_level

MIN_REQUESTS = 4
"""Per block at least: one request alone says more about the network than about the server."""

ARRIVALS_IN_FLIGHT = 256
"""Requests in flight at most under arrivals; more wait in line."""


@dataclass(frozen=True)
class OnlineCell:
    """One condition; ``temperature`` is ``None`` where each request brings its own."""

    workload: str
    load: Load
    temperature: float | None


@dataclass(frozen=True)
class OnlinePlan:
    """Everything an online comparison is told.

    Attributes:
        endpoints: the first is the baseline.
        requests: per workload; each cell gives them its temperature, and every pass new seeds.
        timeout_s: for one request.
    """

    endpoints: tuple[Endpoint, ...]
    requests: Mapping[str, Sequence[OnlineRequest]]
    loads: tuple[Load, ...]
    temperatures: tuple[float | None, ...]
    max_tokens: int
    seed: int
    budget_s: float
    min_effect: float
    timeout_s: float = 300.0

    @property
    def baseline(self) -> str:
        return self.endpoints[0].name

    @property
    def interval_level(self) -> float:
        """All intervals of the run hold together, see ``statistics.looks``."""
        num_conditions = len(self.loads) * len(self.temperatures)
        return run_level(len(self.endpoints) - 1, len(self.cells()), num_conditions)

    def cells(self) -> list[OnlineCell]:
        """Every condition, workload by workload."""
        return [
            OnlineCell(workload, load, temperature)
            for workload in self.requests
            for load in self.loads
            for temperature in self.temperatures
        ]

    def turns(self, cell: OnlineCell, block_number: int) -> list[Endpoint]:
        """The order of the servers in a block: random, and reversed in the next one."""
        order = list(self.endpoints)
        random.Random(repr((self.seed, cell, "turns", block_number // 2))).shuffle(order)
        return order[::-1] if block_number % 2 else order


def cell_requests(plan: OnlinePlan, cell: OnlineCell) -> Iterator[list[OnlineRequest]]:
    """Block after block without end: the requests in random order, over and over, with new seeds.

    Recorded arrivals keep their order within a block; the blocks come in random order.
    """
    requests = plan.requests[cell.workload]
    number = 0
    for pass_number in count():
        shuffler = random.Random(repr((plan.seed, cell, "prompts", pass_number)))
        for block in _one_pass(requests, cell.load, shuffler):
            yield [_asked(plan, cell, one, number + place) for place, one in enumerate(block)]
            number += len(block)


def _one_pass(
    requests: Sequence[OnlineRequest], load: Load, shuffler: random.Random
) -> list[list[OnlineRequest]]:
    if load.recorded:
        blocks = recorded_blocks(requests)
        shuffler.shuffle(blocks)
        return blocks
    size = REQUESTS_PER_ARRIVALS if load.has_arrivals else max(load.concurrency, MIN_REQUESTS)
    order = [*requests] * -(-size // len(requests))
    shuffler.shuffle(order)
    return cut_blocks(order, size)


def recorded_blocks(requests: Sequence[OnlineRequest]) -> list[list[OnlineRequest]]:
    """Requests that followed each other, cut into blocks."""
    return cut_blocks(requests, min(REQUESTS_PER_ARRIVALS, len(requests)))


def _asked(plan: OnlinePlan, cell: OnlineCell, request: OnlineRequest, number: int) -> OnlineRequest:
    temperature = request.temperature if cell.temperature is None else cell.temperature
    return replace(request, temperature=temperature, seed=plan.seed + number)


def at_rates(rates: Sequence[float]) -> tuple[Load, ...]:
    """So many requests a second, arriving at random."""
    return tuple(Load(ARRIVALS_IN_FLIGHT, rate) for rate in rates)


def closed_loops(batch_sizes: Sequence[int]) -> tuple[Load, ...]:
    """So many requests in flight, always."""
    return tuple(Load(size) for size in batch_sizes)
