"""What speculation may lose against plain decoding: a balance that drafts are paid from."""

from __future__ import annotations

ALLOWANCE = 0.0075
"""Share of the time that may be lost in the long run."""

START_STEPS = 4.0
MOST_STEPS = 10.0
"""Gains are saved up to this many plain steps: enough to sit out a dip, too little to be slow for long."""


class LossAccount:
    """Plain steps that may be lost. Every step adds the allowance, and what its drafts gained or lost.

    Drafts need a positive balance. So over any N steps that begin with a balance of b, drafts lose at most

        b + ALLOWANCE * N + (what one step lost)

    plain steps in all, whatever acceptance does: the promise of never being slower rests on this and on no
    estimate of acceptance. It does rest on the estimated cost of a plain step. A second account keeps probes
    from eating up what other drafts gain (``Probing``).

    Args:
        start: balance at first, in plain steps.
        most: of the balance.
    """

    def __init__(self, start: float = START_STEPS, most: float = MOST_STEPS) -> None:
        self.balance = start
        self._most = most

    @property
    def open(self) -> bool:
        """Whether drafts may be tried at all."""
        return self.balance > 0

    def settle(self, gain: float) -> None:
        """After a step: what its drafts gained (lost, below 0), in plain steps."""
        self.book(ALLOWANCE + gain)

    def book(self, gain: float) -> None:
        """Gains (losses, below 0) that are no step of their own."""
        self.balance = min(self.balance + gain, self._most)
