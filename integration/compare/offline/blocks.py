"""Blocks: the unit in which configurations are paired and take turns.

What a block holds and who goes when depends on the seed, the cell and the number of the block alone, so that
a run that goes on later continues the same sequence.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import count, pairwise
from typing import TypeVar

from foredraft.integration.compare.load import poisson_arrivals
from foredraft.integration.compare.offline.prompts import CompareRequest, Prompt
from foredraft.integration.compare.plan import Cell, ComparePlan, request_params

NUM_SEEDS = 2**63

Item = TypeVar("Item")


def cell_blocks(plan: ComparePlan, cell: Cell, prompts: Sequence[Prompt]) -> Iterator[list[CompareRequest]]:
    """Block after block without end: the prompts in random order, over and over, each time with new seeds.

    Every pass serves each prompt equally often, as often as fills a batch.
    """
    number = 0
    for pass_number in count():
        order = [*prompts] * _times_per_pass(cell, prompts)
        _random(plan, cell, "prompts", pass_number).shuffle(order)
        requests = []
        for prompt in order:
            seed = (plan.seed + number) % NUM_SEEDS
            requests.append(CompareRequest(prompt, request_params(plan.base, cell.temperature, seed)))
            number += 1
        yield from cut_blocks(requests, cell.block_size)


def blocks_in_passes(cell: Cell, prompts: Sequence[Prompt], num_times: int) -> int:
    """How many blocks serve each prompt at least ``num_times``, in whole passes."""
    times = _times_per_pass(cell, prompts)
    return len(prompts) * times // cell.block_size * -(-num_times // times)


def turns(plan: ComparePlan, cell: Cell, block_number: int) -> list[str]:
    """The order of the configurations in a block: random, and reversed in the next one.

    A machine that slows down steadily does so for all alike; one that changes in a rhythm meets no rhythm.
    """
    order = list(plan.configs)
    _random(plan, cell, "turns", block_number // 2).shuffle(order)
    return order[::-1] if block_number % 2 else order


def block_arrivals(plan: ComparePlan, cell: Cell, block_number: int, count: int) -> list[float] | None:
    """Seconds from the start of a block to each arrival, the same for all; ``None`` in a closed loop."""
    if cell.arrivals_per_s is None:
        return None
    return poisson_arrivals(cell.arrivals_per_s, count, _key(plan, cell, "arrivals", block_number))


def cut_blocks(items: Sequence[Item], batch_size: int) -> list[list[Item]]:
    """As many blocks as possible of at least ``batch_size`` items, in order, sizes differing by at most one.

    Raises:
        ValueError: fewer items than ``batch_size``; such a batch could never be full.
    """
    num_blocks = len(items) // batch_size
    if num_blocks == 0:
        raise ValueError(f"{len(items)} items do not fill a block of {batch_size}")
    ends = [len(items) * number // num_blocks for number in range(num_blocks + 1)]
    return [list(items[start:end]) for start, end in pairwise(ends)]


def _times_per_pass(cell: Cell, prompts: Sequence[Prompt]) -> int:
    return -(-cell.block_size // len(prompts))


def _random(plan: ComparePlan, cell: Cell, purpose: str, number: int) -> random.Random:
    return random.Random(_key(plan, cell, purpose, number))


def _key(plan: ComparePlan, cell: Cell, purpose: str, number: int) -> str:
    return repr((plan.seed, cell, purpose, number))
