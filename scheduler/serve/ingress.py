"""The one address in front of all variants."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from ray.serve.handle import DeploymentHandle
from starlette.responses import JSONResponse, Response

from foredraft.scheduler.http.asgi import AsgiApp
from foredraft.scheduler.http.errors import ApiError
from foredraft.scheduler.http.limits import RequestLimits
from foredraft.scheduler.serve.forwarding import VARIANT_HEADER, Forwarding
from foredraft.scheduler.serve.ingress_metrics import IngressMetrics
from foredraft.scheduler.serve.messages import HttpCall
from foredraft.scheduler.serve.metrics_pages import acceptance_rate, merged_pages
from foredraft.scheduler.serve.options import ServeOptions
from foredraft.scheduler.serve.probes import Probes
from foredraft.scheduler.serve.replica_pages import replica_pages
from foredraft.scheduler.serve.routing import choose_variant
from foredraft.scheduler.serve.standing import Standings

KEY_HEADER = "x-foredraft-key"
"""Requests with the same key go to the same variant; without it, those with the same ``user``."""

KEPT_BACK = (b"authorization", b"host", b"content-length", b"connection", b"transfer-encoding")
"""Headers that are for the ingress alone."""


class Ingress:
    """Routes, watches over the variants, and counts.

    Args:
        weights: of each variant by name.
        handles: of the variants' deployments, in the same order.
    """

    def __init__(
        self, options: ServeOptions, weights: Mapping[str, float], *handles: DeploymentHandle[Any]
    ) -> None:
        self._options = options
        self._handles = dict(zip(weights, handles, strict=True))
        self._standings = Standings(weights, options.standing, time.monotonic)
        self._metrics = IngressMetrics(self._standings)
        self._forwarding = Forwarding(self._handles, options, self._standings, self._metrics)
        self._probes = Probes(self._handles, self._standings, options)

    def __serve_build_asgi_app__(self) -> AsgiApp:
        app = FastAPI(title="foredraft", lifespan=self._probes.running, docs_url=None, redoc_url=None)
        app.add_exception_handler(ApiError, _answer_error)
        app.add_api_route("/health", self._health, methods=["GET"])
        app.add_api_route("/status", self._status, methods=["GET"])
        app.add_api_route("/metrics", self._metrics_page, methods=["GET"])
        app.add_api_route("/v1/{path:path}", self._serve, methods=["GET", "POST"])
        app.add_middleware(
            RequestLimits, api_keys=self._options.api_keys, max_body_bytes=self._options.max_body_bytes
        )
        return app

    async def _serve(self, request: Request) -> Response:
        body = await request.body()
        variant = self._variant(request, body)
        return await self._forwarding.answer(variant, _call(request, body), request.receive)

    def _variant(self, request: Request, body: bytes) -> str:
        """Raises ``ApiError`` where a variant is named that does not exist."""
        named = request.headers.get(VARIANT_HEADER)
        if named is None:
            key = request.headers.get(KEY_HEADER) or _user(body) or uuid.uuid4().hex
            return choose_variant(key, self._standings.weights)
        if named not in self._handles:
            known = ", ".join(self._handles)
            text = f"{VARIANT_HEADER}: no variant {named[:80]!r}; there are {known}"
            raise ApiError(400, text, code="variant_not_found")
        return named

    async def _health(self) -> Response:
        recent = self._standings.generated_within(self._options.health_max_age_s)
        if recent or await self._probes.any_generates():
            return JSONResponse({"status": "ok"})
        raise ApiError(503, "no variant can generate", code="cannot_generate")

    async def _status(self) -> Response:
        status = self._standings.status()
        for variant in status["variants"]:
            pages = await replica_pages({variant["name"]: self._handles[variant["name"]]})
            variant["replicas"] = [page.replica for page in pages]
            variant["acceptance_rate"] = acceptance_rate(pages)
        return JSONResponse(status)

    async def _metrics_page(self) -> Response:
        pages = await replica_pages(self._handles)
        return Response(self._metrics.page() + merged_pages(pages), media_type="text/plain; version=0.0.4")


async def _answer_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError), "registered for nothing else"
    return JSONResponse(error.as_json(), error.status, error.headers)


def _user(body: bytes) -> str | None:
    """OpenAI's field for the end user."""
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):  # the replica says what is wrong with it
        return None
    user = asked.get("user") if isinstance(asked, dict) else None
    return user if isinstance(user, str) else None


def _call(request: Request, body: bytes) -> HttpCall:
    headers = tuple((name, value) for name, value in request.headers.raw if name.lower() not in KEPT_BACK)
    path = f"/v1/{request.path_params['path']}"  # without the prefix that the application may have
    return HttpCall(request.method, path, request.url.query.encode(), headers, body)
