"""The log of a training: a JSON line per evaluation."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from foredraft.integration.errors import UserError
from foredraft.integration.train.files import write_atomic


@dataclass(frozen=True)
class LogEntry:
    """How the draft did after ``tokens`` tokens.

    Attributes:
        loss: mean since the entry before; ``None`` at the start.
        held_out_greedy, held_out_sampled: teacher-forced acceptance at temperature 0 and 1.
    """

    step: int
    tokens: int
    loss: float | None
    learning_rate: float
    held_out_greedy: float
    held_out_sampled: float


class TrainLog:
    """Entries up to the step a training goes on from; later ones, of a run that was killed, are dropped.

    Raises:
        UserError: from the constructor, the training goes on from a later step and the log of what was
            before is damaged.
    """

    def __init__(self, path: Path, last_step: int) -> None:
        self._path = path
        self.entries = [] if last_step == 0 else _read(path, last_step)

    def add(self, entry: LogEntry) -> None:
        """Append and save.

        Raises:
            UserError: the disk is full.
        """
        self.entries.append(entry)
        lines = "".join(json.dumps(asdict(one)) + "\n" for one in self.entries)
        write_atomic(self._path, lines.encode())


def _read(path: Path, last_step: int) -> list[LogEntry]:
    """The first entry, from before the first step, must be there: nothing can measure it again."""
    try:
        lines = path.read_bytes().splitlines()
        entries = [TypeAdapter(LogEntry).validate_json(line) for line in lines]
    except (OSError, ValidationError):
        entries = []
    if not entries or entries[0].step != 0:
        raise UserError(
            f"--out: {path} is damaged; restore it, or delete it and checkpoint/ to train from the start"
        )
    return [entry for entry in entries if entry.step <= last_step]
