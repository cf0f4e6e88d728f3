"""Writing files in one piece, and finding out beforehand that it will work."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from foredraft.integration.errors import UserError


def check_writable(path: Path, option: str = "--json") -> None:
    """Try the folder out, before an hour of measuring, not after it.

    Raises:
        UserError: ``path`` is a folder, or its folder is missing or not writable.
    """
    if path == Path():
        raise UserError(f"{option}: needs the name of a file (got '' or '.')")
    if path.is_dir():
        raise UserError(f"{option}: {str(path)!r} is a folder, a file name is needed")
    if path.exists() and not path.is_file():
        return  # a pipe or a device
    if not path.parent.is_dir():
        raise UserError(f"{option}: the folder {str(path.parent)!r} does not exist")
    try:
        # By doing it: permissions do not tell about read-only file systems or full disks.
        with tempfile.TemporaryFile(dir=path.parent) as file:
            file.write(b"{}")
    except OSError as error:
        raise UserError(f"{option}: cannot write into {str(path.parent)!r}: {error.strerror}") from None


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write the document; see ``write_text``.

    Raises:
        ValueError: a value that JSON does not know, such as NaN.
    """
    write_text(path, json.dumps(document, indent=2, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write all of it or nothing: a file that was there before is replaced only by a whole one.

    What is no ordinary file (a pipe, ``/dev/stdout``) is written to, never replaced.
    """
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    path = path.resolve()  # through a link, to the file it stands for
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
