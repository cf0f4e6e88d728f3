"""Trained drafts that come with the package, one folder per model they were trained for."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from foredraft.integration.models.draft_file import DRAFT_FILE


def pretrained_draft(model: str) -> Path | None:
    """The draft shipped for the model of this name, ``None`` if there is none."""
    path = Path(str(files("foredraft.proposers"))) / "pretrained" / model / DRAFT_FILE
    return path if path.is_file() else None


def models_with_drafts() -> list[str]:
    """Names of the models that have one."""
    folder = Path(str(files("foredraft.proposers"))) / "pretrained"
    return sorted(path.parent.name for path in folder.glob(f"*/{DRAFT_FILE}"))
