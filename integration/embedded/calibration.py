"""What passes of a model cost on this machine, timed once and kept in the cache."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from foredraft.integration.models.cache import cache_root
from foredraft.proposers.decoder import DraftDecoder, Tokens
from foredraft.scheduler.speculation.step_cost import SIZES

LARGEST_PASS = 64
MAX_ROUNDS = 4
MAX_SECONDS = 1.0
"""Of all rounds but the first."""


def pass_seconds(decoder: DraftDecoder, name: str, sizes: Sequence[int] = SIZES) -> dict[int, float]:
    """Seconds by tokens in a pass, head included; from the cache if this model was timed here before.

    Args:
        decoder: idle; its first row is used and left empty.
        name: of the model and the format it is computed in.
        sizes: tokens in the passes; up to ``LARGEST_PASS``, and to what the decoder holds.
    """
    path = cache_root() / "pass_times" / f"{_key(decoder, name)}.json"
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return {int(size): float(seconds) for size, seconds in json.loads(path.read_text()).items()}
    measured = _measure(decoder, sizes)
    _keep(path, measured)
    return measured


def _key(decoder: DraftDecoder, name: str) -> str:
    on_gpu = decoder.device.type == "cuda"
    device = (
        torch.cuda.get_device_name(decoder.device) if on_gpu else f"cpu {torch.get_num_threads()} threads"
    )
    return hashlib.sha256(f"{name} {device}".encode()).hexdigest()[:32]


def _keep(path: Path, measured: dict[int, float]) -> None:
    """Best effort: without a cache the passes are timed again next time."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(measured))
        temporary.replace(path)


def _measure(decoder: DraftDecoder, wanted: Sequence[int]) -> dict[int, float]:
    """The quickest of a few rounds over all sizes: what disturbs a machine only ever makes it slower."""
    sizes = [size for size in wanted if size <= min(LARGEST_PASS, decoder.capacity, decoder.max_len)]
    _timed(decoder, 1)  # what happens once per process
    seconds = {size: _timed(decoder, size) for size in sizes}
    deadline = time.monotonic() + MAX_SECONDS
    for _ in range(MAX_ROUNDS - 1):
        for size in sizes:
            if time.monotonic() > deadline:
                return seconds
            seconds[size] = min(seconds[size], _timed(decoder, size))
    return seconds


def _timed(decoder: DraftDecoder, size: int) -> float:
    """Seconds of one pass over ``size`` tokens of an empty row."""
    tokens = Tokens(torch.zeros(size, dtype=torch.int64, device=decoder.device), [0], [0], [size])
    decoder.truncate(0, 0)
    started = time.perf_counter()
    decoder.head(decoder.forward(tokens))[-1, 0].item()  # waits for the device
    elapsed = time.perf_counter() - started
    decoder.truncate(0, 0)
    return elapsed
