"""Which rows of a pass share an attention call: padding costs work, a call more costs its start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

LONG_QUERY = 64
"""Queries above this many tokens are prefill chunks and go alone. Drafts stay far below."""

MOST_ROWS = 64
"""Of a call: with more, looking for the best cut takes longer than the calls it saves."""


@dataclass(frozen=True)
class Prices:
    """What attention costs, in any unit: call + key_size * rows * kv_len * (key + query * width), padded.

    Attributes:
        call: starting one.
        key: of each number of a key.
        query: of each of these, more for each query that reads it.
    """

    call: float
    key: float
    query: float


CPU = Prices(call=230_000.0, key=6.0, query=1.0)
"""Fitted to passes of the built-in model in bfloat16 on one core. Over its 30 layers a call takes 0.8 ms, a
key of 192 numbers 4.8 us, and 0.8 us more for each query that reads it. Other models were not measured."""

OTHER = Prices(call=262_144.0, key=1.0, query=0.0)
"""Where launches are dear and a few queries more are read for nothing, as on a GPU. Not measured."""


def cheapest_groups(
    slots: Sequence[int], starts: Sequence[int], counts: Sequence[int], key_size: int, device: torch.device
) -> list[list[int]]:
    """Cut the rows, in the order of their slots, into groups of least cost.

    A group is a view of the cache: its slots lie side by side. Its queries are padded to the longest count,
    its keys to the longest row.

    Args:
        slots: [R] cache slot of each row, each at most once.
        starts: [R] keys in the cache before this pass.
        counts: [R] new tokens of each row, at least 1.
        key_size: numbers of a key in a layer, all heads together.

    Returns:
        Rows by group, in the order of their slots.
    """
    prices = CPU if device.type == "cpu" else OTHER
    call, key, query = prices.call, key_size * prices.key, key_size * prices.query
    order = sorted(range(len(slots)), key=slots.__getitem__)
    rows = [(slots[row], counts[row], starts[row] + counts[row]) for row in order]
    costs = [0.0]  # of the first rows, cut in the cheapest way
    begins = [0]  # where the last group of these begins
    for end in range(1, len(rows) + 1):
        slot, width, kv_len = rows[end - 1]
        best, best_begin = costs[end - 1] + call + kv_len * (key + query * width), end - 1
        for begin in range(end - 2, max(end - MOST_ROWS, 0) - 1, -1):
            slot -= 1
            own_slot, own_width, own_len = rows[begin]
            # Not max(): this is the inner loop of every pass, and a call would take as long as the rest.
            width = own_width if own_width > width else width
            kv_len = own_len if own_len > kv_len else kv_len
            cost = call + (end - begin) * kv_len * (key + query * width)
            # In each case longer groups are out of the question too: they cost more still.
            if own_slot != slot or width > LONG_QUERY or cost >= best:
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
