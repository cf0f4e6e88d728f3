"""Counting answers by path and status."""

from __future__ import annotations

from collections.abc import Collection

from foredraft.integration.server.server_metrics import ServerMetrics
from foredraft.scheduler.http.asgi import AsgiApp, Message, Receive, Scope, Send

OTHER = "other"


class AnswerCount:
    """An ASGI app in front of another one.

    Args:
        paths: counted by name; what strangers ask for is one kind, so that they cannot make many.
    """

    def __init__(self, app: AsgiApp, metrics: ServerMetrics, paths: Collection[str]) -> None:
        self._app = app
        self._metrics = metrics
        self._paths = frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand on the request, and count the answer when it begins."""

        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path, has_begun = scope["path"] if scope["path"] in self._paths else OTHER, False

        async def counted(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                self._metrics.answers.labels(path, str(message["status"])).inc()
            await send(message)

        try:
            await self._app(scope, receive, counted)
        except Exception:
            if not has_begun:  # the outermost layer answers with 500
                self._metrics.answers.labels(path, "500").inc()
            raise
