"""Intervals of a ratio."""

from __future__ import annotations

Interval = tuple[float, float]
"""Lower and upper end of a ratio."""
