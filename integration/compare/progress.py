"""How far a comparison is, on stderr: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

SECONDS_BETWEEN_LINES = 30.0


class ProgressLine:
    """Drawn only between runs: a thread that redraws would disturb the measurement."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task
        self._printed_at = time.monotonic()

    def show(self, seconds_used: float, seconds_left: float, num_open: int) -> None:
        """Say how long it may still take.

        Args:
            num_open: cells in which a verdict is open.
        """
        text = f"comparing: {seconds_used:.0f} s, at most {seconds_left:.0f} s left, {num_open} cells open"
        if self._progress.console.is_terminal:
            total = seconds_used + seconds_left
            self._progress.update(
                self._task, completed=seconds_used, total=total, description=text, refresh=True
            )
        elif time.monotonic() - self._printed_at >= SECONDS_BETWEEN_LINES:
            self._printed_at = time.monotonic()
            self._progress.console.print(text, markup=False, highlight=False)


@contextmanager
def progress_line() -> Iterator[ProgressLine]:
    """A line on stderr while the context lasts."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn())
    with Progress(
        *columns, console=console, auto_refresh=False, transient=True, disable=not console.is_terminal
    ) as progress:
        yield ProgressLine(progress, progress.add_task("comparing", total=None))
