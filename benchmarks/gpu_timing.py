"""Timing of work on a GPU, for ``paired.interleaved``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch
from paired import interleaved, median_interval

BLOCKS = 20


def timed(call: Callable[[], object], repeats: int = 3) -> Callable[[int], float]:
    """A side of ``interleaved``: seconds of a call, the GPU's work included."""

    def run(_block: int) -> float:
        synchronize()
        began = time.perf_counter()
        for _ in range(repeats):
            call()
        synchronize()
        return (time.perf_counter() - began) / repeats

    return run


def synchronize() -> None:
    """Wait for the GPU, where there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def warm_and_measure(
    sides: dict[str, Callable[[int], float]], num_blocks: int = BLOCKS
) -> dict[str, list[float]]:
    """Each side once unmeasured, then all of them in blocks."""
    for side in sides.values():
        side(0)
    seconds = interleaved(sides, num_blocks)
    for name, values in seconds.items():
        print(f"    {name}: {median_interval(values)['median'] * 1e3:.2f} ms", file=sys.stderr)
    return seconds
