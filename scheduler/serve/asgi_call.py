"""Calling an ASGI app without a socket: its lifespan, and one request at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from foredraft.scheduler.http.asgi import AsgiApp, Message
from foredraft.scheduler.serve.messages import HttpCall, ReplyStart

PENDING_PIECES = 64
"""Pieces of an answer that may wait for a slow reader before the app is held up."""


async def call_app(app: AsgiApp, call: HttpCall) -> AsyncIterator[ReplyStart | bytes]:
    """The answer of an app, piece by piece. Closing this early cancels the request in the app.

    Raises:
        Exception: whatever the app raises.
    """
    sent: asyncio.Queue[Message | None] = asyncio.Queue(PENDING_PIECES)
    received = asyncio.Event()
    left = asyncio.Event()

    async def receive() -> Message:
        if received.is_set():
            await asyncio.Event().wait()  # who goes away cancels the task instead
        received.set()
        return {"type": "http.request", "body": call.body, "more_body": False}

    async def send(message: Message | None) -> None:
        if not left.is_set():  # else nobody makes room in the queue
            await sent.put(message)

    async def run() -> None:
        try:
            await app(_scope(call), receive, send)
        finally:
            await send(None)

    task = asyncio.create_task(run())
    try:
        while (message := await sent.get()) is not None:
            if message["type"] == "http.response.start":
                yield ReplyStart(message["status"], tuple(tuple(one) for one in message["headers"]))
            elif message.get("body"):
                yield bytes(message["body"])
        await task
    finally:
        left.set()
        await _cancelled(task)


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _scope(call: HttpCall) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "scheme": "http",
        "method": call.method,
        "path": call.path,
        "raw_path": call.path.encode(),
        "query_string": call.query,
        "root_path": "",
        "headers": list(call.headers),
        "client": None,
        "server": None,
        "state": {},
    }


class Lifespan:
    """An app's start and end; an app without a lifespan has neither."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app
        self._asked: asyncio.Queue[Message] = asyncio.Queue()
        self._answered: asyncio.Queue[Message] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def startup(self) -> None:
        """Raises ``RuntimeError`` with the app's reason if it does not start."""
        self._task = asyncio.create_task(self._run())
        answer = await self._ask("lifespan.startup")
        if answer["type"] == "lifespan.startup.failed":
            raise RuntimeError(f"the server did not start: {answer.get('message', '')}")

    async def shutdown(self) -> None:
        """Let the app give back what it holds."""
        if self._task is not None and not self._task.done():
            await self._ask("lifespan.shutdown")

    async def _run(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": {}}
        try:
            await self._app(scope, self._asked.get, self._answered.put)
        except BaseException as error:
            await self._answered.put({"type": "lifespan.startup.failed", "message": str(error)})
            raise

    async def _ask(self, what: str) -> Message:
        await self._asked.put({"type": what})
        return await self._answered.get()
