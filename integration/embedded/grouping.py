"""Which rows of a pass share an attention call: padding costs work, a call more costs its start."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

LONG_QUERY = 64
"""Queries above this many tokens are prefill chunks and go alone. Drafts stay far below."""


@dataclass(frozen=True)
class Prices:
    """What attention costs, in any unit: a call, a key of a row, and each query's share of such a key."""

    call: float
    key: float
    query: float

    def of(self, num_rows: int, width: int, kv_len: int) -> float:
        """One call over padded rows."""
        return self.call + num_rows * kv_len * (self.key + self.query * width)


CPU = Prices(call=1200.0, key=6.0, query=1.0)
"""Fitted to passes of the built-in model in bfloat16 on one core: 0.8 ms for a call in each of 30 layers,
4.8 us for a key, 0.8 us more for each query that reads it."""

OTHER = Prices(call=256.0, key=1.0, query=0.0)
"""Where launches are dear and a few queries more are read for nothing, as on a GPU. Not measured."""


def cheapest_groups(
    slots: Sequence[int], starts: Sequence[int], counts: Sequence[int], device: torch.device
) -> list[list[int]]:
    """Cut the rows, in the order of their slots, into groups of least cost.

    A group is a view of the cache: its slots lie side by side. Its queries are padded to the longest count,
    its keys to the longest row.

    Args:
        slots: [R] cache slot of each row, each at most once.
        starts: [R] keys in the cache before this pass.
        counts: [R] new tokens of each row, at least 1.

    Returns:
        Rows by group, in the order of their slots.
    """
    prices = CPU if device.type == "cpu" else OTHER
    order = sorted(range(len(slots)), key=slots.__getitem__)
    costs = [0.0]  # of the first rows, cut in the cheapest way
    begins = [0]  # where the last group of these begins
    for end in range(1, len(order) + 1):
        best, best_begin = math.inf, end - 1
        width = kv_len = 0
        for begin in range(end - 1, -1, -1):
            row = order[begin]
            is_alone = begin == end - 1
            if not is_alone and slots[row] + 1 != slots[order[begin + 1]]:
                break
            width, kv_len = max(width, counts[row]), max(kv_len, starts[row] + counts[row])
            if not is_alone and width > LONG_QUERY:
                break
            cost = prices.of(end - begin, width, kv_len)
            if cost >= best:  # and the longer ones are dearer still
                break
            if costs[begin] + cost < best:
                best, best_begin = costs[begin] + cost, begin
        costs.append(best)
        begins.append(best_begin)
    return _groups(order, begins)


def _groups(order: list[int], begins: list[int]) -> list[list[int]]:
    groups = []
    end = len(order)
    while end:
        groups.append(order[begins[end] : end])
        end = begins[end]
    return groups[::-1]
