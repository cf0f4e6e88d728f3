"""Trained drafts and exit heads that come with the package, one folder per model they were trained for."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path


def pretrained(model: str, file_name: str) -> Path | None:
    """The file shipped for the model of this name, ``None`` if there is none."""
    path = _folder() / model / file_name
    return path if path.is_file() else None


def models_with(file_name: str) -> list[str]:
    """Names of the models that have such a file."""
    return sorted(path.parent.name for path in _folder().glob(f"*/{file_name}"))


def _folder() -> Path:
    return Path(str(files("foredraft.proposers"))) / "pretrained"
