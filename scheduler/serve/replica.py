"""One replica of a variant: an OpenAI-compatible app without a socket, behind Ray Serve."""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import AsyncIterator, Callable

from ray import serve

from foredraft.scheduler.http.asgi import AsgiApp
from foredraft.scheduler.serve.asgi_call import Lifespan, call_app
from foredraft.scheduler.serve.messages import Accepted, HttpCall, ReplyStart, probe_call
from foredraft.scheduler.serve.variant import ReplicaFactory

PROOF_S = 5.0
"""A request that was answered within this is proof enough that the replica can generate."""

METRICS_CALL = HttpCall("GET", "/metrics", b"", (), b"")


class Replica:
    """What Ray Serve runs for each replica.

    Args:
        factory: builds the app.
    """

    async def __init__(self, factory: ReplicaFactory) -> None:  # type: ignore[misc]  # Serve awaits it
        self._name = serve.get_replica_context().replica_id.unique_id
        # Building may take minutes; the loop must go on answering Serve meanwhile.
        self._app = await asyncio.to_thread(resolved(factory))
        self._lifespan = Lifespan(self._app)
        await self._lifespan.startup()
        self._generated_at = -PROOF_S
        await self.check_health()

    async def handle(self, call: HttpCall) -> AsyncIterator[Accepted | ReplyStart | bytes]:
        """Serve a request: ``Accepted``, ``ReplyStart``, then the body."""
        yield Accepted(self._name)
        status = 0
        async for piece in call_app(self._app, call):
            if isinstance(piece, ReplyStart):
                status = piece.status
            yield piece
        if status == 200 and call.generates:
            self._generated_at = time.monotonic()

    async def check_health(self) -> None:
        """Raises ``RuntimeError`` if no token can be had; Ray Serve asks this."""
        if time.monotonic() - self._generated_at < PROOF_S:
            return
        status, body = await whole_answer(self._app, probe_call())
        if status != 200:
            raise RuntimeError(f"cannot generate: {status} {body[:300].decode(errors='replace')}")
        self._generated_at = time.monotonic()

    async def metrics(self) -> tuple[str, str]:
        """The replica's name and its Prometheus page; an empty page where the app has none."""
        status, body = await whole_answer(self._app, METRICS_CALL)
        return self._name, body.decode() if status == 200 else ""

    async def __del__(self) -> None:
        """Ray Serve calls this when the open requests are done."""
        if hasattr(self, "_lifespan"):
            await self._lifespan.shutdown()


async def whole_answer(app: AsgiApp, call: HttpCall) -> tuple[int, bytes]:
    """Status and body."""
    status, parts = 0, []
    async for piece in call_app(app, call):
        if isinstance(piece, ReplyStart):
            status = piece.status
        else:
            parts.append(piece)
    return status, b"".join(parts)


def resolved(factory: ReplicaFactory) -> Callable[[], AsgiApp]:
    """The callable behind an import path.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(factory, str):
        return factory
    module, colon, name = factory.partition(":")
    if not colon or not name:
        raise ValueError(f"replica: needs package.module:name, got {factory!r}")
    found = getattr(importlib.import_module(module), name, None)
    if not callable(found):
        raise ValueError(f"replica: {factory!r} is nothing that can be called")
    build: Callable[[], AsgiApp] = found
    return build
