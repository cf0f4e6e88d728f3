"""What an answer says in passing: its tokens, and whether it broke off with an error."""

from __future__ import annotations

import json
from typing import Any

from foredraft.scheduler.http.errors import CLIENT_KINDS

EVENT = b"data: "
MAX_LINE = 2**20


class ReplyWatch:
    """Reads along, without holding anything up.

    Attributes:
        prompt_tokens: as the answer says in ``usage``; so it is for ``completion_tokens``.
        error: the message of an error inside a stream.
        is_clients_fault: whether that error is one of the request, not of who answers it.
    """

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.error: str | None = None
        self.is_clients_fault = False
        self._line = b""

    def stream_piece(self, piece: bytes) -> None:
        """Read a piece of a stream of events; it may end inside one."""
        *lines, self._line = (self._line + piece).split(b"\n")
        if len(self._line) > MAX_LINE:
            self._line = b""
        for line in lines:
            if line.startswith(EVENT) and (b'"usage"' in line or b'"error"' in line):
                self.document(line.removeprefix(EVENT))

    def document(self, text: bytes) -> None:
        """Read a whole JSON object; anything else says nothing."""
        try:
            found = json.loads(text)
        except ValueError:
            return
        if not isinstance(found, dict):
            return
        usage, error = found.get("usage"), found.get("error")
        if isinstance(usage, dict):
            self.prompt_tokens = _count(usage.get("prompt_tokens"))
            self.completion_tokens = _count(usage.get("completion_tokens"))
        if isinstance(error, dict):
            self.error = str(error.get("message"))
            self.is_clients_fault = _is_clients(error)


def _is_clients(error: dict[str, Any]) -> bool:
    code = error.get("code")  # vLLM's is the status that the answer would have had
    return error.get("type") in CLIENT_KINDS or (isinstance(code, int) and 400 <= code < 500)


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
