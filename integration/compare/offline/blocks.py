"""Blocks: the unit in which proposers are paired and take turns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

Item = TypeVar("Item")


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


def rotated(names: Sequence[str], block_number: int) -> list[str]:
    """The order of the proposers in a block: each goes first equally often.

    Taking turns block by block, a machine that slows down or speeds up during the run does so for all.
    """
    first = block_number % len(names)
    return [*names[first:], *names[:first]]
