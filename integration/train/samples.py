"""Training text as token ids, one JSON line per sample: readable, and appended to as the target writes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

HELD_OUT_EVERY = 41
"""One sample in so many. A prime, so that every temperature that answers are written at is among them."""


@dataclass(frozen=True)
class Sample:
    """One text.

    Attributes:
        index: number of the sample; which ones are held out hangs on it.
        token_ids: prompt and response.
        prompt_len: how many of them are the prompt.
        loss_start: predictions of tokens before this place are not learned (a chat template's fixed opening).
    """

    index: int
    token_ids: list[int]
    prompt_len: int
    loss_start: int

    @property
    def held_out(self) -> bool:
        """Whether it measures and never trains."""
        return self.index % HELD_OUT_EVERY == 0


def append_samples(path: Path, samples: Iterable[Sample]) -> None:
    """Add samples to a file and see them onto the disk.

    Raises:
        OSError: they cannot be written, the disk is full perhaps.
    """
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(asdict(sample), separators=(",", ":")) + "\n" for sample in samples)
        file.flush()
        os.fsync(file.fileno())


def read_samples(path: Path) -> list[Sample]:
    """Every whole sample of a file, in order; none if there is no file.

    A line that a killed run left half written ends the file, and is cut off.
    """
    if not path.exists():
        return []
    samples, good_bytes = [], 0
    for line, sample in _parsed(path):
        samples.append(sample)
        good_bytes += len(line)
    if good_bytes < path.stat().st_size:
        os.truncate(path, good_bytes)
    return samples


def _parsed(path: Path) -> Iterator[tuple[bytes, Sample]]:
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                return
            yield line, Sample(**json.loads(line))
