"""A question that many ask at once is answered once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class SharedLook(Generic[T]):
    """Who asks while an answer is under way gets that one.

    Args:
        look: finds the answer.
    """

    def __init__(self, look: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._look = look
        self._task: asyncio.Task[T] | None = None

    async def __call__(self) -> T:
        """The answer; an error of ``look`` is raised to everyone who asked."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())
        # Shielded: who loses patience must not take the answer from the others.
        return await asyncio.shield(self._task)
