"""Refuse a file that could not be written before an hour of measuring, not after it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from foredraft.integration.errors import UserError


def check_writable(path: Path) -> None:
    """Try the folder out.

    Raises:
        UserError: ``path`` is a folder, or its folder is missing or not writable.
    """
    if path.is_dir():
        raise UserError(f"--json: {str(path)!r} is a folder, a file name is needed")
    if path.exists() and not path.is_file():
        return  # a pipe or a device
    if not path.parent.is_dir():
        raise UserError(f"--json: the folder {str(path.parent)!r} does not exist")
    try:
        # By doing it: permissions do not tell about read-only file systems or full disks.
        with tempfile.TemporaryFile(dir=path.parent) as file:
            file.write(b"{}")
    except OSError as error:
        raise UserError(f"--json: cannot write into {str(path.parent)!r}: {error.strerror}") from None
