"""Checkpoints: a training that is killed goes on from the newest one, to the same weights bit by bit."""

from __future__ import annotations

import io
import pickle
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from foredraft.integration.errors import UserError
from foredraft.integration.train.files import write_atomic, writing_to
from foredraft.integration.train.student import Student

CHECKPOINT_FILE = "last.pt"
DAMAGED = (OSError, RuntimeError, KeyError, TypeError, ValueError, EOFError, pickle.UnpicklingError)
"""What reading a damaged file raises."""


@dataclass(frozen=True)
class Place:
    """Where a training stands: steps and tokens done, and the batch to come next."""

    step: int = 0
    tokens: int = 0
    epoch: int = 0
    batch: int = 0


def save_checkpoint(folder: Path, student: Student, optimizer: torch.optim.Optimizer, place: Place) -> None:
    """Replace the newest checkpoint.

    Raises:
        UserError: the disk is full; the one before is kept.
    """
    buffer = io.BytesIO()
    state = {"student": student.state_dict(), "optimizer": optimizer.state_dict(), "place": asdict(place)}
    torch.save(state, buffer)
    with writing_to(folder):
        folder.mkdir(exist_ok=True)
    write_atomic(folder / CHECKPOINT_FILE, buffer.getvalue())


def load_checkpoint(folder: Path, student: Student, optimizer: torch.optim.Optimizer) -> Place:
    """Set student and optimizer to the newest checkpoint; the beginning if there is none.

    Raises:
        UserError: it is damaged.
    """
    path = folder / CHECKPOINT_FILE
    if not path.exists():
        return Place()
    try:
        state = torch.load(path, weights_only=True)
        student.load_state_dict(state["student"])
        optimizer.load_state_dict(state["optimizer"])
        return Place(**state["place"])
    except DAMAGED as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"--out: {path} is damaged ({reason}); delete it to train from the start") from None
