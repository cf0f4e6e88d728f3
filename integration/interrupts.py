"""Ctrl-C, or a polite kill, between two training steps and not within one."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Interrupts:
    """``asked`` turns true at the first signal; the second one ends the program at once."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """The signal handler."""
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def terminate_as_interrupt() -> Iterator[None]:
    """Take SIGTERM, which schedulers send before they kill, like Ctrl-C."""
    with _handling([signal.SIGTERM], signal.default_int_handler):
        yield


@contextmanager
def deferred_interrupts() -> Iterator[Interrupts]:
    """Take Ctrl-C and SIGTERM as a request while inside."""
    interrupts = Interrupts()
    with _handling([signal.SIGINT, signal.SIGTERM], interrupts):
        yield interrupts


@contextmanager
def lost_if_interrupted(what: str) -> Iterator[None]:
    """Say on stderr what an interrupt inside costs."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"interrupted; not saved: {what}; the same command makes them again", file=sys.stderr)
        raise


@contextmanager
def _handling(
    signals: Sequence[signal.Signals], handler: Callable[[int, FrameType | None], Any]
) -> Iterator[None]:
    """Off the main thread nothing changes: no signal arrives there."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = [(number, signal.signal(number, handler)) for number in signals]
    try:
        yield
    finally:
        for number, earlier in before:
            signal.signal(number, earlier)
