"""One request to an OpenAI-compatible server, streamed and timed."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from foredraft.integration.compare.online.endpoint import Endpoint
from foredraft.integration.errors import UserError

DONE = "[DONE]"


@dataclass(frozen=True)
class OnlineRequest:
    """What every server is asked alike."""

    prompt_id: str
    messages: tuple[tuple[str, str], ...]
    max_tokens: int
    temperature: float
    seed: int


@dataclass(frozen=True)
class Reply:
    """What came back.

    Attributes:
        error: what went wrong; then the other figures do not count.
        num_tokens: as the server says; the number of pieces of text where it does not say.
        first_token_s: seconds to the first piece of text.
        seconds: to the end.
    """

    error: str | None
    text: str
    num_tokens: int
    first_token_s: float
    seconds: float


class StreamError(Exception):
    """A reply that is none; the text says why."""


def first_model(endpoint: Endpoint, timeout_s: float) -> str:
    """The name of the first model that a server offers.

    Raises:
        UserError: the server does not answer, or not like an OpenAI server.
    """
    try:
        listed = json.loads(get_text(endpoint, "/v1/models", timeout_s))
        return str(listed["data"][0]["id"])
    except (OSError, http.client.HTTPException, StreamError) as error:
        raise UserError(f"--endpoint {endpoint.name}: {endpoint.url} does not answer: {error}") from None
    except (ValueError, LookupError, TypeError):
        raise UserError(
            f"--endpoint {endpoint.name}: {endpoint.url}/v1/models does not list a model"
        ) from None


def get_text(endpoint: Endpoint, path: str, timeout_s: float) -> str:
    """The body of a page.

    Raises:
        OSError: no connection, or too slow.
        http.client.HTTPException: not HTTP.
        StreamError: a status other than 200.
    """
    connection = _connect(endpoint, timeout_s)
    try:
        connection.request("GET", urlsplit(endpoint.url).path + path)
        response = connection.getresponse()
        if response.status != 200:
            raise StreamError(f"HTTP {response.status}")
        return response.read().decode("utf-8", errors="replace")
    finally:
        connection.close()


def send(endpoint: Endpoint, model: str, request: OnlineRequest, timeout_s: float) -> Reply:
    """Ask for a chat completion and read it as it comes. Never raises for what the server does.

    Args:
        timeout_s: for the whole of it.
    """
    started = time.perf_counter()
    text, num_pieces, num_tokens, first_token_s = "", 0, None, 0.0
    error = None
    try:
        for event in _events(endpoint, model, request, started + timeout_s):
            piece = _piece(event)
            if piece:
                first_token_s = first_token_s or time.perf_counter() - started
                text, num_pieces = text + piece, num_pieces + 1
            num_tokens = (event.get("usage") or {}).get("completion_tokens", num_tokens)
    except (OSError, http.client.HTTPException, StreamError) as failure:
        error = str(failure) or type(failure).__name__
    seconds = time.perf_counter() - started
    if error is None and not num_pieces:
        error = "no text came"
    counted = num_tokens if isinstance(num_tokens, int) and num_tokens > 0 else num_pieces
    return Reply(error, text, counted, first_token_s, seconds)


def _events(
    endpoint: Endpoint, model: str, request: OnlineRequest, deadline: float
) -> Iterator[dict[str, Any]]:
    """The JSON objects of the event stream."""
    connection = _connect(endpoint, deadline - time.perf_counter())
    try:
        path = urlsplit(endpoint.url).path + "/v1/chat/completions"
        connection.request("POST", path, json.dumps(_body(model, request)), _HEADERS)
        response = connection.getresponse()
        if response.status != 200:
            raise StreamError(f"HTTP {response.status}")
        for line in response:
            if time.perf_counter() > deadline:
                raise StreamError("timed out")
            data = line.decode("utf-8", errors="replace").strip()
            if data == f"data: {DONE}":
                return
            if data.startswith("data:"):
                yield _parsed(data.removeprefix("data:"))
        raise StreamError("the stream ended before it was done")
    finally:
        connection.close()


_HEADERS = {"Content-Type": "application/json", "Accept": "text/event-stream"}


def _body(model: str, request: OnlineRequest) -> dict[str, Any]:
    return {
        "model": model,
        "messages": [{"role": role, "content": content} for role, content in request.messages],
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "seed": request.seed,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def _parsed(data: str) -> dict[str, Any]:
    try:
        event = json.loads(data)
    except ValueError:
        raise StreamError("an event that is not JSON") from None
    if not isinstance(event, dict):
        raise StreamError("an event that is no object")
    if "error" in event:
        raise StreamError(f"the server says: {event['error']!s:.200}")
    return event


def _piece(event: dict[str, Any]) -> str:
    """The text that an event adds."""
    try:
        choices = event.get("choices") or []
        return str(choices[0].get("delta", {}).get("content") or "") if choices else ""
    except (AttributeError, LookupError, TypeError):
        raise StreamError("an event that is no chat completion") from None


def _connect(endpoint: Endpoint, timeout_s: float) -> http.client.HTTPConnection:
    parts = urlsplit(endpoint.url)
    assert parts.hostname is not None, "checked when the endpoint was parsed"
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(parts.hostname, parts.port, timeout=max(timeout_s, 0.001))
