"""Paired, interleaved measurement: each block runs all sides, so slow spells of the machine hit them all."""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

import torch


def interleaved(sides: Mapping[str, Callable[[int], float]], num_blocks: int) -> dict[str, list[float]]:
    """Run every side once per block and collect what it returns.

    A side is given the number of the block. The order rotates from block to block, so that no side always
    runs on what another left in the caches.
    """
    names = list(sides)
    observed: dict[str, list[float]] = {name: [] for name in names}
    for block in range(num_blocks):
        shift = block % len(names)
        for name in names[shift:] + names[:shift]:
            observed[name].append(sides[name](block))
        print(f"\rblock {block + 1}/{num_blocks}", end="", file=sys.stderr, flush=True)
    print("\r", end="", file=sys.stderr)
    return observed


def median_interval(values: Sequence[float]) -> dict[str, float]:
    """Median with its 95 % interval: ranks n/2 -+ 1.96 sqrt(n)/2 of the sorted values."""
    ordered = sorted(values)
    half_width = 1.96 * math.sqrt(len(ordered)) / 2
    low = max(0, math.floor(len(ordered) / 2 - half_width))
    high = min(len(ordered) - 1, math.ceil(len(ordered) / 2 + half_width))
    return {"median": statistics.median(ordered), "low": ordered[low], "high": ordered[high]}


def median_ratio(first: Sequence[float], second: Sequence[float]) -> dict[str, float]:
    """Median and interval of the paired ratios first / second."""
    return median_interval([one / other for one, other in zip(first, second, strict=True)])


def shown(interval: Mapping[str, float]) -> str:
    """``1.23 [1.20, 1.27]``."""
    return f"{interval['median']:.3f} [{interval['low']:.3f}, {interval['high']:.3f}]"


def print_json(benchmark: str, settings: Mapping[str, object], results: object) -> None:
    """One line for programs: what was measured, where, with what."""
    environment = {
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": version("transformers"),
        "foredraft": _own_version(),
    }
    print(json.dumps({"benchmark": benchmark, **settings, "environment": environment, "results": results}))


def _own_version() -> str:
    try:
        return version("foredraft")
    except PackageNotFoundError:
        return "not installed, run from a checkout"
