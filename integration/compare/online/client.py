"""One request to an OpenAI-compatible server, streamed and timed."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

from foredraft.integration.compare.online.endpoint import Endpoint
from foredraft.integration.compare.online.http_stream import (
    FAULTS,
    RefusedError,
    StreamError,
    fault_text,
    get_text,
    post_events,
)
from foredraft.integration.compare.online.server_text import whole_letters
from foredraft.integration.errors import UserError


@dataclass(frozen=True)
class OnlineRequest:
    """What every server is asked alike.

    Attributes:
        messages: (role, content) of a chat.
        prompt: instead of messages: a text that is continued as it is.
        arrival_s: when it was made in recorded traffic.
    """

    prompt_id: str
    messages: tuple[tuple[str, str], ...]
    max_tokens: int
    temperature: float
    seed: int
    prompt: str | None = None
    arrival_s: float | None = None


@dataclass(frozen=True)
class Reply:
    """What came back.

    Attributes:
        error: what went wrong; then the other figures do not count.
        num_tokens: as the server says; ``None`` where it does not say, or says what cannot be. Pieces of text
            are no tokens: a server that speculates sends several in one.
        first_token_s: seconds to the first piece of text.
        seconds: to the end.
        refused: whether the server does not take this request at all.
    """

    error: str | None
    text: str
    num_tokens: int | None
    first_token_s: float
    seconds: float
    refused: bool = False


def find_model(endpoint: Endpoint, timeout_s: float) -> str:
    """The name of the model to ask for: the one wanted, or the first that the server lists.

    Raises:
        UserError: the server does not answer, not like an OpenAI server, or lacks the one wanted.
    """
    where = f"--endpoint {endpoint.name}: {endpoint.url}"
    try:
        listed = json.loads(get_text(endpoint, "/v1/models", timeout_s))
        names = [name for name in (str(model["id"]) for model in listed["data"]) if name.isprintable()]
        first = names[0]
    except FAULTS as error:
        raise UserError(f"{where} does not answer: {fault_text(endpoint, error)}") from None
    except (ValueError, LookupError, TypeError):
        raise UserError(f"{where}/v1/models does not list a model") from None
    if endpoint.model is not None and endpoint.model not in names:
        some = ", ".join(names[:8])
        raise UserError(f"--model-name: {endpoint.name} has no model {endpoint.model!r}; it has {some}")
    return endpoint.model or first


def send(endpoint: Endpoint, model: str, request: OnlineRequest, timeout_s: float) -> Reply:
    """Ask for a completion and read it as it comes. Never raises for what the server does.

    Args:
        timeout_s: for the whole of it.
    """
    started = time.perf_counter()
    text, told, first_token_s = "", None, 0.0
    error, refused = None, False
    path = "/v1/chat/completions" if request.prompt is None else "/v1/completions"
    try:
        for event in post_events(endpoint, path, _body(model, request), started + timeout_s):
            piece = _piece(event)
            if piece:
                first_token_s = first_token_s or time.perf_counter() - started
                text += piece
            told = _told_tokens(event) or told
    except FAULTS as failure:
        error = fault_text(endpoint, failure)
        refused = isinstance(failure, RefusedError)
    seconds = time.perf_counter() - started
    if error is None and not text:
        error = "no text came"
    num_tokens = _possible(told, request.max_tokens)
    return Reply(error, whole_letters(text), num_tokens, first_token_s, seconds, refused)


def _body(model: str, request: OnlineRequest) -> dict[str, Any]:
    messages = [{"role": role, "content": content} for role, content in request.messages]
    asked = {"messages": messages} if request.prompt is None else {"prompt": request.prompt}
    return {
        "model": model,
        **asked,
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "seed": request.seed,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def _told_tokens(event: dict[str, Any]) -> object:
    """What the server says is the number of output tokens, in the event that tells it."""
    usage = event.get("usage")
    return usage.get("completion_tokens") if isinstance(usage, dict) else None


def _possible(count: object, max_tokens: int) -> int | None:
    """The count if it can be one: a whole number, and no more than were asked for."""
    if not isinstance(count, int) or isinstance(count, bool):
        return None
    return count if 0 < count <= max_tokens else None


def _piece(event: dict[str, Any]) -> str:
    """The text that an event adds, thoughts included: they are generated like the rest."""
    try:
        choices = event.get("choices") or []
        if not choices:
            return ""
        delta = choices[0].get("delta") or {}
        found = (choices[0].get("text"), *(delta.get(key) for key in TEXT_KEYS))
        return "".join(str(part) for part in found if part)
    except (AttributeError, LookupError, TypeError):
        raise StreamError("an event that is no completion") from None


TEXT_KEYS = ("reasoning_content", "reasoning", "content")
