"""How far a stage is: a bar on a terminal, now and then a line elsewhere. Everything goes to stderr."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

LINE_EVERY_S = 30.0


class StageProgress:
    """A context that takes reports of one stage.

    Args:
        name: what is being done.
        total: what there is to do, in ``unit``.
        done: what earlier runs did of it; no speed is counted for that.
    """

    def __init__(self, name: str, total: int, done: int = 0, unit: str = "tokens") -> None:
        self._name = name
        self._unit = unit
        self._total = total
        self._first = self._done = done
        self._note = ""
        self._console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TimeElapsedColumn())
        self._bar = Progress(*columns, console=self._console, disable=not self._console.is_terminal)
        self._task = self._bar.add_task(name, total=total, completed=done)
        self._started = self._line_at = time.monotonic()

    def __enter__(self) -> StageProgress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
        if not self._console.is_terminal:
            self._print()

    def update(self, done: int, note: str = "") -> None:
        """Report what is done so far, and what else to show."""
        self._done = done
        self._note = note or self._note
        self._bar.update(self._task, completed=done, description=self._text())
        now = time.monotonic()
        if not self._console.is_terminal and now - self._line_at >= LINE_EVERY_S:
            self._line_at = now
            self._print()

    def _text(self) -> str:
        seconds = time.monotonic() - self._started
        parts = [f"{self._name}: {self._done} of {self._total} {self._unit}"]
        if self._done > self._first and seconds > 0:
            speed = (self._done - self._first) / seconds
            left_s = max(self._total - self._done, 0) / speed
            parts += [f"{speed:.0f} {self._unit}/s", f"{int(left_s // 60)}:{int(left_s % 60):02d} left"]
        return ", ".join([*parts, self._note] if self._note else parts)

    def _print(self) -> None:
        self._console.print(self._text(), soft_wrap=True, highlight=False, markup=False)
