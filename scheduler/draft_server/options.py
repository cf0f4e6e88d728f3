"""Sizes and times of a draft server."""

from __future__ import annotations

from dataclasses import dataclass

MOST_WAITING = 112


@dataclass(frozen=True)
class DraftServerOptions:
    """
    Attributes:
        most_waiting: targets whose messages may wait; more are told that the server is busy.
        batch_tokens: tokens drafted for several targets in one batch at most.
        gather_ms: how long to wait for other active targets, so that they are served in one batch.
        lease_s: a target that is silent for so long is taken for dead, and its rows are given to others.
    """

    most_waiting: int = 64
    batch_tokens: int = 512
    gather_ms: float = 1.0
    lease_s: float = 60.0

    def __post_init__(self) -> None:
        for name in ("most_waiting", "batch_tokens"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} must be a whole number, 1 or more, got {value!r}")
        if self.most_waiting > MOST_WAITING:
            raise ValueError(f"most_waiting must be at most {MOST_WAITING}, got {self.most_waiting}")
        if not self.gather_ms >= 0:
            raise ValueError(f"gather_ms must be 0 or more, got {self.gather_ms!r}")
        if not self.lease_s > 0:
            raise ValueError(f"lease_s must be more than 0, got {self.lease_s!r}")
