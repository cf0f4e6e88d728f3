"""What goes between the ingress and a replica."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

Headers = tuple[tuple[bytes, bytes], ...]

JSON_HEADERS: Headers = ((b"content-type", b"application/json"),)


@dataclass(frozen=True)
class HttpCall:
    """A request as it came, its body whole."""

    method: str
    path: str
    query: bytes
    headers: Headers
    body: bytes

    @property
    def generates(self) -> bool:
        """Whether an answer to it proves that tokens can be had."""
        return self.method == "POST" and self.path.endswith("/completions")


@dataclass(frozen=True)
class ReplyStart:
    """The first thing an app answers; pieces of the body follow as bytes."""

    status: int
    headers: Headers


@dataclass(frozen=True)
class Accepted:
    """The first thing a replica says: the request is with it now.

    Attributes:
        replica: its name.
    """

    replica: str


def probe_call() -> HttpCall:
    """Asks for one token. Token ids need no tokenizer, and every vocabulary has a token 0."""
    asked: dict[str, Any] = {"prompt": [0], "max_tokens": 1, "temperature": 0}
    return HttpCall("POST", "/v1/completions", b"", JSON_HEADERS, json.dumps(asked).encode())
