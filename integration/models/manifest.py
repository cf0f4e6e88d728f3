"""A list of the files of a finished folder, by which damage is noticed."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from pydantic import BaseModel, ValidationError

MANIFEST = "foredraft-manifest.json"


class FileRecord(BaseModel):
    """What a file was when it was finished: size in bytes, time in ns."""

    size: int
    mtime_ns: int
    sha256: str


class Manifest(BaseModel):
    """``source`` says what the folder was made from."""

    source: str
    files: dict[str, FileRecord]


def write_manifest(folder: Path, source: str) -> None:
    """Record every file of ``folder`` as it is now."""
    files = {path.name: _record(path) for path in sorted(folder.iterdir())}
    _replace(folder / MANIFEST, Manifest(source=source, files=files))


def find_fault(folder: Path, source: str | None, *, verify: bool = False) -> str | None:
    """Why ``folder`` cannot be used, ``None`` if it can.

    Contents are read only where size and time are not the recorded ones, or with ``verify``.

    Args:
        source: what it should have been made from; ``None`` accepts any.
    """
    try:
        manifest = Manifest.model_validate_json((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        return "missing"
    except (OSError, ValidationError):
        return f"{MANIFEST} is unreadable"
    if source is not None and manifest.source != source:
        return f"made from {manifest.source}, not {source}"
    faults = (_file_fault(folder / name, record, verify) for name, record in manifest.files.items())
    fault = next((fault for fault in faults if fault), None)
    if fault is None:
        _refresh_times(folder, manifest)
    return fault


def _file_fault(path: Path, record: FileRecord, verify: bool) -> str | None:
    try:
        stat = path.stat()
        if stat.st_size != record.size:
            return f"{path.name} has {stat.st_size} bytes, not {record.size}"
        if (verify or stat.st_mtime_ns != record.mtime_ns) and _sha256(path) != record.sha256:
            return f"{path.name} has changed"
    except OSError as error:
        return f"{path.name}: {error.strerror}"
    return None


def _refresh_times(folder: Path, manifest: Manifest) -> None:
    """Remember the times of intact files that were copied or touched, so that they are read once only."""
    times = {name: (folder / name).stat().st_mtime_ns for name in manifest.files}
    if all(record.mtime_ns == times[name] for name, record in manifest.files.items()):
        return
    for name, record in manifest.files.items():
        record.mtime_ns = times[name]
    with contextlib.suppress(OSError):  # a read-only cache is as good; its files are read at each start
        _replace(folder / MANIFEST, manifest)


def _record(path: Path) -> FileRecord:
    stat = path.stat()
    return FileRecord(size=stat.st_size, mtime_ns=stat.st_mtime_ns, sha256=_sha256(path))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _replace(path: Path, manifest: Manifest) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_text(manifest.model_dump_json(indent=1))
    temporary.replace(path)
