"""Refusing a request before anything reads it: no key, or too large."""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from foredraft.scheduler.http.asgi import AsgiApp, Message, Receive, Scope, Send, header, send_json
from foredraft.scheduler.http.errors import ApiError

OPEN_PATHS = ("/health",)
"""Paths that need no key: who probes a server has none."""


class RequestLimits:
    """An ASGI app in front of another one.

    Args:
        api_keys: one of them must come as ``Authorization: Bearer KEY``; empty = everyone may ask.
        max_body_bytes: of a request; a larger one is refused with 413, whatever its headers claim.
    """

    def __init__(self, app: AsgiApp, api_keys: Sequence[str], max_body_bytes: int) -> None:
        self._app = app
        self._api_keys = [key.encode() for key in api_keys]
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with an error, or hand on the request with its body."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            self._check_key(scope)
            body = await self._body(scope, receive)
        except ApiError as error:
            await send_json(send, error.status, error.body())
            return
        await self._app(scope, _replayed(body, receive), send)

    def _check_key(self, scope: Scope) -> None:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if not self._api_keys or path in OPEN_PATHS:
            return
        kind, _, given = (header(scope, b"authorization") or b"").partition(b" ")
        # Every key is compared, and each in constant time: how long it takes tells nothing.
        matches = [hmac.compare_digest(given.strip(), key) for key in self._api_keys]
        if kind.lower() != b"bearer" or not any(matches):
            raise ApiError(401, "the API key is missing or wrong", code="invalid_api_key")

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        claimed = header(scope, b"content-length") or b"0"
        if claimed.isdigit() and int(claimed) > self._max_body_bytes:
            raise self._too_large()
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return b""
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._max_body_bytes:
                raise self._too_large()
            if not message.get("more_body"):
                return b"".join(parts)

    def _too_large(self) -> ApiError:
        text = f"the request is larger than {self._max_body_bytes} bytes"
        return ApiError(413, text, code="request_too_large")


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body as one message, then whatever the client does."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return pending.pop() if pending else await receive()

    return next_message
