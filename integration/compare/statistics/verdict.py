"""What an interval says."""

from __future__ import annotations

from typing import Literal

from foredraft.integration.compare.statistics.intervals import Interval

Verdict = Literal["faster", "slower", "no difference shown", "too few blocks", "output differs"]

MIN_EFFECT = 0.01
"""Differences below this are not called: two equal configurations can differ by it through where their
memory happens to lie."""

EQUIVALENT = 0.05
"""An interval within -+ this is as good as an answer: no difference that would matter."""


def speed_verdict(interval: Interval | None, min_effect: float = MIN_EFFECT) -> Verdict:
    """``faster`` or ``slower`` only where the whole interval lies beyond the minimal effect.

    ``None``: the blocks give no interval.
    """
    if interval is None:
        return "too few blocks"
    if interval[0] > 1 + min_effect:
        return "faster"
    if interval[1] < 1 / (1 + min_effect):
        return "slower"
    return "no difference shown"


def is_clear(interval: Interval | None, min_effect: float = MIN_EFFECT) -> bool:
    """Whether more blocks would not change the answer: called, or shown to be as good as equal."""
    if interval is None:
        return False
    within = interval[0] > 1 / (1 + EQUIVALENT) and interval[1] < 1 + EQUIVALENT
    return within or speed_verdict(interval, min_effect) != "no difference shown"
