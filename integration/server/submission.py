"""The outputs of one client's prompts, on their way from the engine's thread to an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from foredraft.integration.engine import RequestOutput
from foredraft.scheduler.http.errors import ApiError


class Submission:
    """Prompts that one client asked for together. Made, read and failed in its event loop.

    Outputs are cumulative, so a slow reader misses none of what a newer one repeats.

    Attributes:
        request_ids: of each prompt in the engine.
    """

    def __init__(self, request_ids: Sequence[str]) -> None:
        self.request_ids = list(request_ids)
        self._loop = asyncio.get_running_loop()
        self._unread: dict[str, RequestOutput] = {}
        self._finished: set[str] = set()
        self._failure: ApiError | None = None
        self._changed = asyncio.Event()

    @property
    def unfinished_ids(self) -> list[str]:
        """Requests whose end was not delivered yet."""
        return [one for one in self.request_ids if one not in self._finished]

    def deliver(self, output: RequestOutput) -> None:
        """Called in the engine's thread."""
        self._call(lambda: self._take(output))

    def deliver_failure(self, failure: ApiError) -> None:
        """Called in the engine's thread: nothing more will come."""
        self._call(lambda: self._fail(failure))

    async def next_outputs(self) -> list[tuple[int, RequestOutput]]:
        """What changed since the last call, (place of the prompt, output); empty = all are finished.

        Raises:
            ApiError: the engine failed.
        """
        while not self._unread:
            if self._failure is not None:
                raise self._failure
            if not self.unfinished_ids:
                return []
            self._changed.clear()
            await self._changed.wait()
        unread, self._unread = self._unread, {}
        return [(self.request_ids.index(output.request_id), output) for output in unread.values()]

    def _call(self, then: Callable[[], None]) -> None:
        # A loop that was closed has nobody who waits; the engine must go on for the others.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(then)

    def _take(self, output: RequestOutput) -> None:
        self._unread[output.request_id] = output
        if output.finished:
            self._finished.add(output.request_id)
        self._changed.set()

    def _fail(self, failure: ApiError) -> None:
        self._failure = failure
        self._changed.set()
