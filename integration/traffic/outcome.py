"""What became of a line of a log."""

from __future__ import annotations

from dataclasses import dataclass

BAD_VALUE = "a request with a value out of range"


@dataclass(frozen=True)
class LeftOut:
    """A line that gives no request.

    Attributes:
        reason: what it is; empty for a line that only belongs to another one and is not counted.
    """

    reason: str
