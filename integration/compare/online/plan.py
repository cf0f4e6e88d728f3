"""What an online comparison measures."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from foredraft.integration.compare.offline.blocks import cut_blocks
from foredraft.integration.compare.online.client import OnlineRequest
from foredraft.integration.compare.online.endpoint import Endpoint
from foredraft.integration.compare.online.load import Load
from foredraft.integration.compare.statistics.looks import LOOKS, interval_level
from foredraft.integration.errors import UserError
from foredraft.integration.workloads import WorkloadPrompt

MIN_REQUESTS = 4
"""Per block at least: one request alone says more about the network than about the server."""

ARRIVALS_IN_FLIGHT = 256
"""Requests in flight at most under random arrivals; more wait in line."""


@dataclass(frozen=True)
class OnlineCell:
    """One condition."""

    workload: str
    load: Load
    temperature: float


@dataclass(frozen=True)
class OnlinePlan:
    """Everything an online comparison is told.

    Attributes:
        endpoints: the first is the baseline.
        prompts: per workload.
        timeout_s: for one request.
    """

    endpoints: tuple[Endpoint, ...]
    prompts: dict[str, list[WorkloadPrompt]]
    loads: tuple[Load, ...]
    temperatures: tuple[float, ...]
    max_tokens: int
    seed: int
    budget_s: float
    min_effect: float
    timeout_s: float = 300.0

    @property
    def interval_level(self) -> float:
        """All intervals of the run hold together, see ``statistics.looks``."""
        return interval_level((len(self.endpoints) - 1) * len(self.cells()), len(LOOKS))

    def cells(self) -> list[OnlineCell]:
        """Every condition, workload by workload."""
        return [
            OnlineCell(workload, load, temperature)
            for workload in self.prompts
            for load in self.loads
            for temperature in self.temperatures
        ]

    def turns(self, cell: OnlineCell, block_number: int) -> list[Endpoint]:
        """The order of the servers in a block: random, and reversed in the next one."""
        order = list(self.endpoints)
        random.Random(repr((self.seed, cell, "turns", block_number // 2))).shuffle(order)
        return order[::-1] if block_number % 2 else order


def cell_requests(plan: OnlinePlan, cell: OnlineCell) -> Iterator[list[OnlineRequest]]:
    """Block after block without end: the prompts in random order, over and over, with new seeds."""
    size = max(cell.load.concurrency if cell.load.arrivals_per_s is None else 0, MIN_REQUESTS)
    prompts = plan.prompts[cell.workload]
    number = 0
    for pass_number in count():
        order = [*prompts] * -(-size // len(prompts))
        random.Random(repr((plan.seed, cell, "prompts", pass_number))).shuffle(order)
        requests = []
        for prompt in order:
            message = ("user", prompt.turns[0])
            seed = plan.seed + number
            requests.append(OnlineRequest(prompt.id, (message,), plan.max_tokens, cell.temperature, seed))
            number += 1
        yield from cut_blocks(requests, size)


def parse_rates(text: str) -> tuple[Load, ...]:
    """ "0.5,2" -> Poisson arrivals of so many requests a second.

    Raises:
        UserError: not positive numbers.
    """
    try:
        rates = [float(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"--rates: needs numbers, separated by commas (got {text!r})") from None
    if not all(0 < rate <= 1e4 for rate in rates):
        raise UserError(f"--rates: should be above 0 and at most 10000 a second (got {text!r})")
    return tuple(Load(ARRIVALS_IN_FLIGHT, rate) for rate in dict.fromkeys(rates))


def closed_loops(batch_sizes: Sequence[int]) -> tuple[Load, ...]:
    """So many requests in flight, always."""
    return tuple(Load(size) for size in batch_sizes)
