"""When a line of a log was written."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any

_TIME = re.compile(r"(?:(\d{4})-)?(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?")
YEAR_UNKNOWN = 2000
"""A leap year: 29 February is a day of it."""

HALF_A_YEAR = timedelta(days=180)
MILLISECONDS_FROM = 1e11
"""Seconds since 1970 reach this in the year 5138."""


class LogClock:
    """Seconds of the lines of one log; vLLM writes no year, so the turn of a year is found by a jump back."""

    def __init__(self) -> None:
        self._last = datetime(1, 7, 1, tzinfo=UTC)
        self._years = timedelta()

    def seconds(self, text: str) -> float | None:
        """Of the first date and time in ``text``; ``None`` without one."""
        found = _TIME.search(text)
        if found is None:
            return None
        year, *rest, fraction = found.groups()
        month, day, hour, minute, second = map(int, rest)
        try:
            moment = datetime(int(year or YEAR_UNKNOWN), month, day, hour, minute, second, tzinfo=UTC)
        except ValueError:
            return None
        moment += timedelta(seconds=float(f"0.{fraction or 0}"))
        if year is None:
            moment = self._in_its_year(moment)
        return moment.timestamp()

    def _in_its_year(self, moment: datetime) -> datetime:
        if moment + self._years < self._last - HALF_A_YEAR:
            self._years += timedelta(days=366)
        self._last = max(moment + self._years, self._last)
        return moment + self._years


def json_seconds(value: Any) -> float | None:
    """Seconds since 1970 from a number (seconds or milliseconds) or an ISO 8601 text; else ``None``.

    Infinite where a number is beyond what a float holds.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        try:
            return value / 1000 if value > MILLISECONDS_FROM else float(value)
        except OverflowError:
            return math.inf
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
