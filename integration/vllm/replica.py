"""A replica of vLLM: its own OpenAI app over its own engine, as an app that Ray Serve can call."""

from __future__ import annotations

import argparse
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from foredraft.integration.config_sources import LoadedConfig
from foredraft.integration.vllm.serve import server_arguments
from foredraft.scheduler.http.asgi import AsgiApp, Receive, Scope, Send

KEY_VARIABLE = "VLLM_API_KEY"


@dataclass(frozen=True)
class VllmReplica:
    """Builds the app where it is called; itself it is small and can be pickled.

    Attributes:
        arguments: flags of ``vllm serve``; what belongs to a socket has no meaning here.
    """

    loaded: LoadedConfig
    arguments: tuple[str, ...] = ()

    def __call__(self) -> AsgiApp:
        """The app; its engine starts with its lifespan.

        Raises:
            UserError: a value of the configuration that vLLM cannot take.
        """
        # Keys are asked for once, at the ingress, which does not pass them on.
        os.environ.pop(KEY_VARIABLE, None)
        return VllmApp(server_arguments(self.loaded, self.arguments))


class VllmApp:
    """vLLM's app, made when it is to start: its engine needs the running event loop."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._app: Any = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the lifespan."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await self._app(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        async with self._running():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        from vllm.entrypoints.launchers.api_server.app_state import init_app_state
        from vllm.entrypoints.launchers.api_server.entry import build_async_engine_client
        from vllm.entrypoints.launchers.app import build_app

        async with build_async_engine_client(self._arguments) as engine:
            tasks = await engine.get_supported_tasks()
            app = build_app(self._arguments, tasks, engine.model_config)
            await init_app_state(engine, app.state, self._arguments, tasks)
            # What vLLM tells to exit when its engine is dead; here Ray Serve replaces the replica.
            app.state.server = SimpleNamespace(should_exit=False)
            async with app.router.lifespan_context(app):
                self._app = app
                yield
