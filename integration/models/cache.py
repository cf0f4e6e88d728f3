"""Folders that are made once and kept in the user's cache. A folder is there whole, or not at all."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

from foredraft.integration.errors import UserError
from foredraft.integration.models.manifest import MANIFEST, find_fault, write_manifest


def cache_root() -> Path:
    """The folder named by the environment variable FOREDRAFT_CACHE, else the user's cache folder."""
    return Path(os.environ.get("FOREDRAFT_CACHE") or platformdirs.user_cache_dir("foredraft"))


def cached_folder(
    name: str, source: str | None, build: Callable[[Path], None], *, verify: bool = False
) -> Path:
    """The finished folder ``name`` of the cache; ``build`` fills it if it is missing, damaged or outdated.

    Only one process builds at a time, the others wait. A build that fails or is killed leaves nothing that
    a later call would take for finished.

    Args:
        source: what the folder is made from; ``None`` accepts a folder made from anything.
        verify: compare the contents of every file, not only sizes and times.

    Raises:
        UserError: the cache folder cannot be written, or the disk is full.
    """
    folder = cache_root() / name
    if find_fault(folder, source, verify=verify) is None:
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder.with_name(f"{name}.lock"), f"another process is preparing {name}; waiting for it"):
            fault = find_fault(folder, source, verify=verify)
            if fault:
                _say_why(folder, fault)
                _rebuild(folder, source or "", build)
    except OSError as error:
        if error.errno is None:  # not from the file system: libraries raise such for bad contents
            raise
        raise UserError(
            f"cache folder {folder.parent}: {error.strerror}; set FOREDRAFT_CACHE to another folder"
        ) from error
    return folder


def _rebuild(folder: Path, source: str, build: Callable[[Path], None]) -> None:
    """Fill a temporary folder beside and rename it. The caller holds the lock."""
    prefix = f".{folder.name}."
    for leftover in folder.parent.glob(f"{prefix}*"):  # of killed builds: a live one would hold the lock
        shutil.rmtree(leftover)
    if folder.exists():
        (folder / MANIFEST).unlink(missing_ok=True)  # first, so that a half-removed folder is not in use
        shutil.rmtree(folder)
    temporary = Path(tempfile.mkdtemp(prefix=prefix, dir=folder.parent))
    try:
        build(temporary)
        write_manifest(temporary, source)
        for path in (*temporary.iterdir(), temporary):
            _sync(path)
        temporary.rename(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _sync(folder.parent)


@contextmanager
def _lock(path: Path, waiting: str) -> Iterator[None]:
    """Hold ``path`` locked. The system lets go of it when the process ends, however it ends."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(waiting, file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _say_why(folder: Path, fault: str) -> None:
    if folder.exists():
        print(f"{folder.name} in the cache cannot be used ({fault}); preparing it again", file=sys.stderr)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
