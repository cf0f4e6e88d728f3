"""Seconds each stage took, over all runs in a folder."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from foredraft.integration.train.files import write_atomic


class StageTimes:
    """Kept in a file, so that a resumed run adds to what the ones before it took."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.seconds = _read(path)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the time inside, also if it is interrupted."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + time.monotonic() - started, 1)
            write_atomic(self._path, json.dumps(self.seconds).encode())


def _read(path: Path) -> dict[str, float]:
    """What earlier runs took; a damaged file is statistics lost, no reason to stop."""
    try:
        return TypeAdapter(dict[str, float]).validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return {}
