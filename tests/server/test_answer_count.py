"""Answers are counted however they come about."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter

from foredraft.integration.server.answer_count import AnswerCount
from foredraft.scheduler.http.asgi import Receive, Scope, Send


def test_an_app_that_raises_is_counted_as_500() -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("a fault of ours")

    registry = CollectorRegistry()
    answers = Counter("answers", "Answers.", ["path", "status"], registry=registry)
    metrics: Any = SimpleNamespace(answers=answers)
    scope = {"type": "http", "path": "/v1/completions"}
    unused: Any = None
    with pytest.raises(RuntimeError, match="a fault of ours"):
        asyncio.run(AnswerCount(broken, metrics, ["/v1/completions"])(scope, unused, unused))
    assert registry.get_sample_value("answers_total", {"path": "/v1/completions", "status": "500"}) == 1
