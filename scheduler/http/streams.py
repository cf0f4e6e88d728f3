"""Answers that are sent piece by piece, and end however they end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from starlette.responses import StreamingResponse

from foredraft.scheduler.http.asgi import Receive, Scope, Send


class ClosingStream(StreamingResponse):
    """A stream of events.

    Args:
        on_end: called once it is over, and where the client goes before the first piece too, when the
            generator never runs and so could clean up nothing.
    """

    def __init__(self, pieces: AsyncIterator[bytes], on_end: Callable[[], None], status: int = 200) -> None:
        super().__init__(pieces, status, media_type="text/event-stream")
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()
