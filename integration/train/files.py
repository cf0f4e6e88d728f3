"""Writing a file whole or not at all, and saying in one line why it could not be written."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from foredraft.integration.errors import UserError

MB = 1e6


def write_atomic(path: Path, content: bytes) -> None:
    """Write to a temporary name, see it onto the disk, and rename: what was there stays until then.

    Raises:
        UserError: it cannot be written, the disk is full perhaps; nothing half-written is left.
    """
    temporary = path.with_name(path.name + ".tmp")
    with writing_to(path):
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:  # Ctrl-C as well
            temporary.unlink(missing_ok=True)
            raise


@contextmanager
def writing_to(path: Path) -> Iterator[None]:
    """Turn an error of the disk into the user's."""
    try:
        yield
    except OSError as error:
        advice = ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            advice = "; what was complete is kept, make room and run the same command again"
        raise UserError(f"--out: {path} cannot be written: {error.strerror or error}{advice}") from error


def check_free_space(folder: Path, needed_bytes: int) -> None:
    """Refuse to begin what the disk cannot hold.

    Raises:
        UserError: less is free.
    """
    free = shutil.disk_usage(folder).free
    if needed_bytes > free:
        raise UserError(
            f"--out: {folder} needs {needed_bytes / MB:.1f} MB more, {free / MB:.1f} MB are free; make room, "
            "give another folder, or train on less data"
        )
