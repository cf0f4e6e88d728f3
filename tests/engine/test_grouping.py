"""Rows of a pass are cut into attention calls at the least cost."""

from __future__ import annotations

from itertools import pairwise

import torch
from hypothesis import given, strategies

from foredraft.integration.embedded.grouping import CPU, LONG_QUERY, MOST_ROWS, cheapest_groups

CALL = {"key_size": 192, "device": torch.device("cpu")}
ON_GPU = {"key_size": 192, "device": torch.device("cuda")}
Row = tuple[int, int, int]  # slot, keys before this pass, new tokens

rows_of_a_pass = strategies.lists(
    strategies.tuples(
        strategies.integers(0, 9),
        strategies.integers(0, 1_000),
        strategies.one_of(strategies.integers(1, 17), strategies.integers(LONG_QUERY + 1, 256)),
    ),
    min_size=1,
    max_size=7,
    unique_by=lambda row: row[0],
)


def cost(group: list[Row]) -> float:
    """Of one call; infinite where it cannot be one."""
    slots = [slot for slot, _, _ in group]
    width = max(count for _, _, count in group)
    if slots != list(range(slots[0], slots[0] + len(slots))) or (len(group) > 1 and width > LONG_QUERY):
        return float("inf")
    kv_len = max(start + count for _, start, count in group)
    return CPU.call + 192 * len(group) * kv_len * (CPU.key + CPU.query * width)


def all_cuts(rows: list[Row]) -> list[list[list[Row]]]:
    if not rows:
        return [[]]
    return [[rows[:end], *rest] for end in range(1, len(rows) + 1) for rest in all_cuts(rows[end:])]


@given(rows_of_a_pass)
def test_no_other_cut_costs_less(rows: list[Row]) -> None:
    slots, starts, counts = (list(values) for values in zip(*rows, strict=True))
    found = [[rows[place] for place in group] for group in cheapest_groups(slots, starts, counts, **CALL)]

    assert sorted(row for group in found for row in group) == sorted(rows)
    best = min(sum(map(cost, cut)) for cut in all_cuts(sorted(rows)))
    assert abs(sum(map(cost, found)) - best) < 1e-6 * best
    assert all(first[-1] < second[0] for first, second in pairwise(found))


def test_a_long_draft_leaves_the_short_ones_alone() -> None:
    assert cheapest_groups([0, 1, 2, 3], [400] * 4, [1, 13, 1, 1], **CALL) == [[0], [1], [2, 3]]
    assert cheapest_groups([0, 1, 2, 3], [400] * 4, [1, 13, 1, 1], **ON_GPU) == [[0, 1, 2, 3]]


def test_like_rows_share_a_call() -> None:
    assert cheapest_groups([2, 0, 1], [400, 410, 390], [5, 5, 4], **CALL) == [[1, 2, 0]]


def test_a_call_has_so_many_rows_at_most() -> None:
    groups = cheapest_groups(range(MOST_ROWS + 9), [400] * (MOST_ROWS + 9), [1] * (MOST_ROWS + 9), **CALL)
    assert sorted(map(len, groups)) == [9, MOST_ROWS]
