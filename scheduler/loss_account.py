"""What speculation may lose against plain decoding: a balance that drafts are paid from."""

from __future__ import annotations

ALLOWANCE = 0.01
"""Share of the time that may be lost in the long run."""

START_STEPS = 4.0
MOST_STEPS = 10.0
"""Gains are saved up to this many plain steps: enough to sit out a dip, too little to be slow for long."""


class LossAccount:
    """Seconds that may be lost. Every step adds the allowance, and what its drafts gained or lost.

    Drafts need a positive balance. So whatever acceptance does, the time is at most that of plain decoding,
    plus 1 %, plus a few steps: the promise of never being slower rests on this and on no estimate of
    acceptance. It does rest on the estimated cost of a plain step.
    """

    def __init__(self) -> None:
        self._steps = START_STEPS

    @property
    def open(self) -> bool:
        """Whether drafts may be tried at all."""
        return self._steps > 0

    def affords(self, loss_s: float, plain_step_s: float) -> bool:
        """Whether a probe that brings nothing could be paid."""
        return loss_s <= self._steps * plain_step_s

    def settle(self, gain_s: float, plain_step_s: float) -> None:
        """After a step: seconds that its drafts gained (or lost, below 0), and those of a step without."""
        self._steps = min(self._steps + ALLOWANCE + gain_s / max(plain_step_s, 1e-9), MOST_STEPS)
