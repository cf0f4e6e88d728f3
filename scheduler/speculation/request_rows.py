"""Where the state of each request is kept: a row of every array that has one row per request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

SHARED = 0
"""The row of all requests together; none of them gets it."""

FIRST_SIZE = 16


class RequestRows:
    """Gives requests their rows.

    Attributes:
        size: rows that the arrays must have.
    """

    def __init__(self) -> None:
        self.size = FIRST_SIZE
        self._rows: dict[str, int] = {}
        self._free = list(range(FIRST_SIZE - 1, SHARED, -1))

    def of(self, request_ids: Sequence[str]) -> Ints:
        """The row of each request; a new one gets a row that was never used, or was released."""
        known = self._rows.get
        return np.array([known(name) or self._new(name) for name in request_ids], dtype=np.int64)

    def _new(self, request_id: str) -> int:
        if not self._free:
            self._free = list(range(2 * self.size - 1, self.size - 1, -1))
            self.size *= 2
        row = self._rows[request_id] = self._free.pop()
        return row

    def release(self, request_id: str) -> int | None:
        """The row that is free again, to be cleared; ``None`` for a request never seen."""
        row = self._rows.pop(request_id, None)
        if row is not None:
            self._free.append(row)
        return row

    def __len__(self) -> int:
        return len(self._rows)


def grown(rows: NDArray[Any], size: int) -> NDArray[Any]:
    """``rows`` with ``size`` rows at least, new ones all zero."""
    if len(rows) >= size:
        return rows
    return np.concatenate([rows, np.zeros((size - len(rows), *rows.shape[1:]), rows.dtype)])
