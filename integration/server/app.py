"""The OpenAI-compatible app over an engine."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from foredraft.integration.engine import Engine
from foredraft.integration.errors import UserError
from foredraft.integration.server.answer_count import AnswerCount
from foredraft.integration.server.completions import Completions
from foredraft.integration.server.engine_loop import EngineLoop
from foredraft.integration.server.health import Health
from foredraft.integration.server.server_metrics import ServerMetrics
from foredraft.integration.server.settings import ServerSettings
from foredraft.scheduler.http.errors import ApiError
from foredraft.scheduler.http.limits import RequestLimits

FIELD = re.compile(r"[a-z_]+(\.[\w-]+)*(?=: )")


def create_app(engine: Engine, settings: ServerSettings) -> FastAPI:
    """The app. Its lifespan starts the engine's thread and ends it."""
    loop = EngineLoop(engine)
    health = Health(loop, settings)
    metrics = ServerMetrics(engine, loop, settings)
    completions = Completions(engine, loop, settings, metrics)

    @asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        loop.start()
        yield
        await loop.stop()

    app = FastAPI(title="foredraft", lifespan=running, docs_url=None, redoc_url=None)
    routes: dict[str, tuple[str, Callable[..., Coroutine[Any, Any, Response]]]] = {
        "/v1/completions": ("POST", completions.complete),
        "/v1/chat/completions": ("POST", completions.chat),
        "/v1/models": ("GET", _models(settings)),
        "/health": ("GET", _health(health)),
        "/metrics": ("GET", _metrics(metrics)),
    }
    for path, (method, endpoint) in routes.items():
        app.add_api_route(path, endpoint, methods=[method])
    app.add_exception_handler(UserError, _user_error)
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected_error)
    # The last one added is the first to see a request: refused ones are counted too.
    app.add_middleware(RequestLimits, api_keys=settings.api_keys, max_body_bytes=settings.max_body_bytes)
    app.add_middleware(AnswerCount, metrics=metrics, paths=list(routes))
    return app


Endpoint = Callable[[], Coroutine[Any, Any, Response]]


def _models(settings: ServerSettings) -> Endpoint:
    created = int(time.time())

    async def models() -> Response:
        listed = [
            {"id": name, "object": "model", "created": created, "owned_by": "foredraft"}
            for name in settings.model_names
        ]
        return JSONResponse({"object": "list", "data": listed})

    return models


def _health(health: Health) -> Endpoint:
    async def check() -> Response:
        await health.check()
        return JSONResponse({"status": "ok"})

    return check


def _metrics(metrics: ServerMetrics) -> Endpoint:
    async def page() -> Response:
        return Response(metrics.page(), media_type="text/plain; version=0.0.4")

    return page


async def _user_error(_: Request, error: Exception) -> Response:
    message = "; ".join(str(error).splitlines())
    field = FIELD.match(message)
    return _answered(ApiError(400, message, param=field[0] if field else None))


async def _api_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError), "registered for nothing else"
    return _answered(error)


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "registered for nothing else"
    return _answered(ApiError(error.status_code, str(error.detail), headers=error.headers))


async def _unexpected_error(_: Request, error: Exception) -> Response:
    return _answered(ApiError(500, f"unexpected: {type(error).__name__}", code="internal_error"))


def _answered(error: ApiError) -> Response:
    return JSONResponse(error.as_json(), error.status, error.headers)
