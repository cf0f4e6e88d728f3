"""The folder of a run: nobody else's files in it, and one run in it at a time."""

from __future__ import annotations

import fcntl
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from foredraft.integration.errors import UserError
from foredraft.integration.train.data import GIVEN, WRITTEN
from foredraft.integration.train.exit_states import EXIT_STATES
from foredraft.integration.train.features import FEATURES
from foredraft.integration.train.files import writing_to
from foredraft.integration.train.kept_settings import SETTINGS_FILE
from foredraft.integration.train.samples import read_samples
from foredraft.integration.train.shards import is_foreign

LOCK_FILE = ".lock"
SHARD = re.compile(r"\d{5}\.safetensors(\.tmp)?")
SHARDS = re.compile(rf"{FEATURES}|{EXIT_STATES}-\d+")
SWEEP_FOLDER = re.compile(r"sweep-\d+")
SWEEP_FILE = "sweep.json"


@contextmanager
def run_folder(folder: Path, data: Sequence[str]) -> Iterator[None]:
    """The folder, made if need be, and locked while inside.

    A new run takes a folder that is empty or holds only samples and features of an earlier one, or a sweep.

    Args:
        data: the user's files, which must not be what the run writes.

    Raises:
        UserError: the folder cannot be written, is in use, or holds something else.
    """
    _check_data_is_elsewhere(folder, data)
    with writing_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if not (folder / SETTINGS_FILE).exists():
        _check_holds_nothing_else(folder)
    with writing_to(folder):
        lock = (folder / LOCK_FILE).open("w")
    with lock:
        _take(lock.fileno(), folder)
        yield


def _take(descriptor: int, folder: Path) -> None:
    try:
        with writing_to(folder):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except UserError as error:
        if isinstance(error.__cause__, BlockingIOError):
            raise UserError(f"--out: another run is at work in {folder}; wait for it or stop it") from None
        raise


def _check_data_is_elsewhere(folder: Path, data: Sequence[str]) -> None:
    for path in data:
        if Path(path).resolve() in [(folder / name).resolve() for name in (WRITTEN, GIVEN)]:
            raise UserError(
                f"--data: {path} is a file that the run itself writes in {folder}; move it, or name "
                "another folder"
            )


def _check_holds_nothing_else(folder: Path) -> None:
    with writing_to(folder):
        entries = sorted(folder.iterdir())
    for entry in entries:
        if not _is_ours(entry):
            raise UserError(
                f"--out: {folder} is not empty and holds no training ({entry.name}); name a new folder"
            )
    for name in (WRITTEN, GIVEN):
        read_samples(folder / name)


def _is_ours(entry: Path) -> bool:
    """By its name; what a run that was killed early leaves is among it."""
    if SHARDS.fullmatch(entry.name) and entry.is_dir():
        return all(_is_shard(shard) for shard in entry.iterdir())
    if SWEEP_FOLDER.fullmatch(entry.name) and entry.is_dir():
        return (entry / SETTINGS_FILE).exists() or all(_is_ours(one) for one in entry.iterdir())
    return entry.name.removesuffix(".tmp") in (WRITTEN, GIVEN, LOCK_FILE, SWEEP_FILE, SETTINGS_FILE)


def sweep_folders(folder: Path) -> list[Path]:
    """Those in which exit layers were tried."""
    return sorted(entry for entry in folder.iterdir() if SWEEP_FOLDER.fullmatch(entry.name))


def _is_shard(path: Path) -> bool:
    return bool(SHARD.fullmatch(path.name)) and not is_foreign(path)
