"""Asking variants for a token, regularly and when someone wants to know."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from foredraft.scheduler.http.errors import ApiError
from foredraft.scheduler.http.shared_look import SharedLook
from foredraft.scheduler.serve.messages import probe_call
from foredraft.scheduler.serve.options import ServeOptions
from foredraft.scheduler.serve.relay import open_reply
from foredraft.scheduler.serve.standing import Standings


class Probes:
    """Keeps the standings up to date where no request does."""

    def __init__(self, handles: Mapping[str, Any], standings: Standings, options: ServeOptions) -> None:
        self._handles = handles
        self._standings = standings
        self._policy = options.standing
        self.any_generates = SharedLook(self._any_generates)

    @asynccontextmanager
    async def running(self, _: Any) -> AsyncIterator[None]:
        """Probe in the background meanwhile."""
        tasks = [asyncio.create_task(self._probe_regularly(name)) for name in self._handles]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _any_generates(self) -> bool:
        """Whether some variant generates now."""
        tasks = [asyncio.create_task(self._error(name)) for name in self._handles]
        try:
            for done in asyncio.as_completed(tasks):
                if await done is None:
                    return True
            return False
        finally:
            for task in tasks:
                task.cancel()

    async def _probe_regularly(self, name: str) -> None:
        while True:
            await asyncio.sleep(self._policy.probe_period_s)
            if self._standings.needs_probe(name):
                self._standings.note_probe(name, await self._error(name))

    async def _error(self, name: str) -> str | None:
        """What is wrong with a variant; ``None`` = it generated a token."""
        timeout_s = self._policy.probe_timeout_s
        try:
            reply = await open_reply(name, self._handles[name], probe_call(), timeout_s, timeout_s)
        except ApiError as error:
            return error.message
        try:
            body = b"".join([piece async for piece in reply.pieces()])
        except ApiError as error:
            return error.message
        finally:
            reply.close()
        if reply.start.status != 200:
            return f"{reply.start.status} {body[:300].decode(errors='replace')}"
        return None
