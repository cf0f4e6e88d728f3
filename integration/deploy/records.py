"""Which clusters have deployments of this user, so that ``status`` and ``down`` need not be told."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import platformdirs

FOLDER = "FOREDRAFT_STATE"


@dataclass(frozen=True)
class Record:
    """A deployment and the address of its cluster. Whether it still runs only the cluster knows."""

    name: str
    address: str


def record_folder() -> Path:
    """The folder named by the environment variable FOREDRAFT_STATE, else the user's state folder."""
    return Path(os.environ.get(FOLDER) or platformdirs.user_state_dir("foredraft")) / "deployments"


def write_record(record: Record) -> None:
    """Remember a deployment."""
    folder = record_folder()
    folder.mkdir(parents=True, exist_ok=True)
    temporary = _path(record).with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps(asdict(record)), encoding="utf-8")
    temporary.replace(_path(record))


def forget_record(record: Record) -> None:
    """Forget it; unknown ones are fine."""
    _path(record).unlink(missing_ok=True)


def read_records() -> list[Record]:
    """All that are remembered, by name. A file that cannot be read is none."""
    records = []
    for path in sorted(record_folder().glob("*.json")):
        try:
            records.append(Record(**json.loads(path.read_text(encoding="utf-8"))))
        except (OSError, ValueError, TypeError):
            continue
    return records


def _path(record: Record) -> Path:
    address = "".join(letter if letter.isalnum() else "_" for letter in record.address)
    return record_folder() / f"{record.name}.{address}.json"
