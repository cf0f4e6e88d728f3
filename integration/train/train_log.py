"""The log of a training: a JSON line per evaluation."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

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
    """Entries up to the step a training goes on from; later ones, of a run that was killed, are dropped."""

    def __init__(self, path: Path, last_step: int) -> None:
        self._path = path
        self.entries = [entry for entry in _read(path) if entry.step <= last_step]

    def add(self, entry: LogEntry) -> None:
        """Append and save.

        Raises:
            UserError: the disk is full.
        """
        self.entries.append(entry)
        lines = "".join(json.dumps(asdict(one)) + "\n" for one in self.entries)
        write_atomic(self._path, lines.encode())


def _read(path: Path) -> list[LogEntry]:
    if not path.exists():
        return []
    return [LogEntry(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
