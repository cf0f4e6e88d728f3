"""Training text as token ids, one JSON line per sample: readable, and appended to as the target writes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from foredraft.integration.errors import UserError
from foredraft.integration.workloads.json_lines import parse_json

HELD_OUT_EVERY = 41
"""One sample in so many. A prime, so that every temperature that answers are written at is among them."""

OPENING = b'{"index":'
"""How the line of a sample begins."""


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

    A last line that a killed run left half written is cut off.

    Raises:
        UserError: the file cannot be read, or a line is no sample; the file stays as it is.
    """
    if not path.exists():
        return []
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise UserError(f"--out: {path} cannot be read: {error.strerror or error}") from None
    half = lines.pop() if lines and _half_written(lines) else b""
    samples = [_parse(line, f"--out: {path}, line {number}") for number, line in enumerate(lines, start=1)]
    if half:
        os.truncate(path, path.stat().st_size - len(half))
    return samples


def _half_written(lines: list[bytes]) -> bool:
    """Whether the last line is no whole one; the only line of a file must also look like a sample."""
    last = lines[-1]
    return not last.endswith(b"\n") and (len(lines) > 1 or last[: len(OPENING)] == OPENING[: len(last)])


def _parse(line: bytes, where: str) -> Sample:
    try:
        row = parse_json(line)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    if not _is_sample(row):
        raise UserError(f"{where}: not a sample of a training; restore or remove it, or name another folder")
    return Sample(**row)


def _is_sample(row: object) -> bool:
    if not isinstance(row, dict) or row.keys() != {"index", "token_ids", "prompt_len", "loss_start"}:
        return False
    ids = row["token_ids"]
    numbers = [row["index"], row["loss_start"], row["prompt_len"]]
    if not isinstance(ids, list) or not all(type(number) is int for number in [*numbers, *ids]):
        return False
    return bool(min(numbers + ids) >= 0 and row["loss_start"] <= row["prompt_len"] <= len(ids))
