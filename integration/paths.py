"""Paths as people write them."""

from __future__ import annotations

from pathlib import Path

from foredraft.integration.errors import UserError


def user_path(text: str | Path, option: str) -> Path:
    """``~`` and ``~name`` expanded.

    Raises:
        UserError: there is no such user.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise UserError(f"{option}: {text}: {error}") from None
