"""HTTP as the comparison needs it: a page, and a stream of events, each within a time."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from foredraft.integration.compare.online.endpoint import Endpoint

DONE = "[DONE]"
MAX_LINE = 1 << 20
BROKEN_OFF = "the connection broke off in the middle of the answer"
REFUSALS = (400, 413, 422)
"""The server will not take this request; another one it may."""


class StreamError(Exception):
    """A reply that is none; the text says why."""


class RefusedError(StreamError):
    """The server does not take this request."""


FAULTS = (OSError, http.client.HTTPException, StreamError)
"""What a server may do to a request."""


def fault_text(endpoint: Endpoint, fault: Exception) -> str:
    """A fault in words; those of ``http.client`` alone do not say what happened."""
    if isinstance(fault, http.client.IncompleteRead):
        return BROKEN_OFF
    if isinstance(fault, http.client.BadStatusLine) and not isinstance(fault, ConnectionError):
        return "what it answers is not HTTP"
    return endpoint.shown(str(fault)) or type(fault).__name__


def get_text(endpoint: Endpoint, path: str, timeout_s: float) -> str:
    """The body of a page.

    Args:
        timeout_s: for the whole of it.

    Raises:
        OSError: no connection, or too slow.
        http.client.HTTPException: not HTTP.
        StreamError: a status other than 200.
    """
    deadline = time.perf_counter() + timeout_s
    connection = _connect(endpoint, timeout_s)
    try:
        connection.request("GET", urlsplit(endpoint.url).path + path, headers=_key_header(endpoint))
        response = connection.getresponse()
        if response.status != 200:
            raise StreamError(f"HTTP {response.status}")
        return b"".join(_pieces(response, deadline)).decode("utf-8", errors="replace")
    finally:
        connection.close()


def post_events(
    endpoint: Endpoint, path: str, body: dict[str, Any], deadline: float
) -> Iterator[dict[str, Any]]:
    """The JSON objects of the event stream that answers ``body``.

    Args:
        deadline: on the clock of ``time.perf_counter``.

    Raises:
        OSError: no connection, or too slow.
        http.client.HTTPException: not HTTP.
        StreamError: not such a stream, or its status is not 200.
    """
    connection = _connect(endpoint, deadline - time.perf_counter())
    headers = {"Content-Type": "application/json", "Accept": "text/event-stream"} | _key_header(endpoint)
    try:
        connection.request("POST", urlsplit(endpoint.url).path + path, json.dumps(body), headers)
        response = connection.getresponse()
        if response.status != 200:
            kind = RefusedError if response.status in REFUSALS else StreamError
            raise kind(f"HTTP {response.status}{_reason(response)}")
        for line in _lines(response, deadline):
            data = line.decode("utf-8", errors="replace").strip()
            if data == f"data: {DONE}":
                return
            if data.startswith("data:"):
                yield _parsed(data.removeprefix("data:"))
        raise StreamError("the stream ended before it was done")
    finally:
        connection.close()


def _lines(response: http.client.HTTPResponse, deadline: float) -> Iterator[bytes]:
    rest = b""
    for piece in _pieces(response, deadline):
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole
        if len(rest) > MAX_LINE:
            raise StreamError("a line without an end")
    if rest:
        yield rest


def _pieces(response: http.client.HTTPResponse, deadline: float) -> Iterator[bytes]:
    """The body as it comes; a server that sends a letter now and then is given up as well."""
    while piece := response.read1(65536):
        if time.perf_counter() > deadline:
            raise StreamError("timed out")
        yield piece
    if response.length:
        raise StreamError(BROKEN_OFF)


def _reason(response: http.client.HTTPResponse) -> str:
    """What an error page says, if it says it as OpenAI does."""
    try:
        page = json.loads(response.read(65536))
        error = page.get("error", page)
        message = error.get("message") if isinstance(error, dict) else error
    except (*FAULTS, ValueError, AttributeError):
        return ""
    return f": {message!s:.200}" if message else ""


def _parsed(data: str) -> dict[str, Any]:
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        raise StreamError("an event that is not JSON") from None
    if not isinstance(event, dict):
        raise StreamError("an event that is no object")
    if "error" in event:
        raise StreamError(f"the server says: {event['error']!s:.200}")
    return event


def _key_header(endpoint: Endpoint) -> dict[str, str]:
    return {"Authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}


def _connect(endpoint: Endpoint, timeout_s: float) -> http.client.HTTPConnection:
    parts = urlsplit(endpoint.url)
    assert parts.hostname is not None, "checked when the endpoint was parsed"
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(parts.hostname, parts.port, timeout=max(timeout_s, 0.001))
