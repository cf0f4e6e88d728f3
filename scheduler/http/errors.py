"""Errors as OpenAI's API words them, whole or as an event inside a stream."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "service_unavailable",
}
"""Status -> ``type`` of the error; the others are ``server_error``."""

CLIENT_KINDS = frozenset(kind for status, kind in KINDS.items() if status < 500)
"""What a client did wrong, or too much load: no fault of who answers."""

DONE = b"data: [DONE]\n\n"


class ApiError(Exception):
    """What a client is told.

    Args:
        status: of the answer.
        param: the field of the request that is at fault.
        code: a short name for programs.
        headers: of the answer, such as ``Retry-After``.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    def as_json(self) -> dict[str, Any]:
        """The body of the answer."""
        kind = KINDS.get(self.status, "server_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def body(self) -> bytes:
        """The same in bytes."""
        return json.dumps(self.as_json()).encode()

    def event(self) -> bytes:
        """The same as the last event of a stream but ``[DONE]``."""
        return b"data: " + self.body() + b"\n\n"
