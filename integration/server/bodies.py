"""The JSON body of a request, checked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from foredraft.integration.errors import UserError
from foredraft.integration.sampling_params import SamplingParams

IGNORED = (
    "user",
    "store",
    "metadata",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "parallel_tool_calls",
)
"""Fields of OpenAI's that say nothing about the text."""

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "echo": (False,),
    "suffix": ("",),
    "best_of": (1,),
    "use_beam_search": (False,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
}
"""Fields that we know and cannot honour, and the values that ask for nothing."""


MESSAGE_FIELDS = ("role", "content", "name")


class StreamOptions(BaseModel):
    """OpenAI's ``stream_options``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    include_usage: bool = False


class RequestBody(SamplingParams):
    """What both kinds of completion have in common."""

    model: str | None = None
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    return_token_ids: bool = Field(False, description="vLLM's: token ids beside the text")

    def sampling_params(self) -> SamplingParams:
        """How it samples."""
        given = self.model_fields_set & SamplingParams.model_fields.keys()
        return SamplingParams(**{name: getattr(self, name) for name in given})


class CompletionBody(RequestBody):
    """Of ``/v1/completions``."""

    prompt: list[str | list[int]]

    @field_validator("prompt", mode="before")
    @classmethod
    def _as_list(cls, value: Any) -> Any:
        if isinstance(value, str) or _is_ids(value):
            return [value]
        if isinstance(value, list) and value and all(isinstance(one, str) or _is_ids(one) for one in value):
            return value
        raise ValueError("needs a text, a list of token ids, or a list of those")


class ChatBody(RequestBody):
    """Of ``/v1/chat/completions``."""

    messages: list[dict[str, str]]

    @field_validator("messages", mode="before")
    @classmethod
    def _as_texts(cls, value: Any) -> Any:
        if not isinstance(value, list) or not value:
            raise ValueError("needs a list with one message at least")
        return [_message(place, one) for place, one in enumerate(value)]


def completion_body(text: bytes, defaults: Mapping[str, Any]) -> CompletionBody:
    """The body of a completion.

    Args:
        defaults: sampling of requests that do not say otherwise.

    Raises:
        UserError: names the field that is at fault.
    """
    return CompletionBody(**{**defaults, **_known(_parsed(text))})


def chat_body(text: bytes, defaults: Mapping[str, Any], room: int) -> ChatBody:
    """The body of a chat.

    Args:
        room: tokens that an answer without a limit may have.

    Raises:
        UserError: names the field that is at fault.
    """
    values = _known(_parsed(text))
    limit = values.pop("max_completion_tokens", None)
    if limit is not None:
        values["max_tokens"] = limit
    wanted, num_top = values.pop("logprobs", False), values.pop("top_logprobs", None)
    if not isinstance(wanted, bool):
        raise UserError(f"logprobs: is true or false in a chat; top_logprobs says how many (got {wanted!r})")
    if num_top is not None and not wanted:
        raise UserError("top_logprobs: needs logprobs to be true")
    if wanted:
        values["logprobs"] = num_top or 0
    return ChatBody(**{"max_tokens": room, **defaults, **values})


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"body: is no JSON: {error}") from None
    if not isinstance(values, dict):
        raise UserError("body: needs a JSON object")
    for name, value in values.items():
        _check_text(name, value)
    return values


def _check_text(name: str, value: Any) -> None:
    """JSON can write halves of surrogate pairs, which no tokenizer takes."""
    try:
        json.dumps([name, value], ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise UserError(f"{ascii(name)[1:-1]}: {half!a} is half of a surrogate pair, not text") from None


def _known(values: dict[str, Any]) -> dict[str, Any]:
    """Without what is ignored; ``null`` means that nothing was said."""
    for name, allowed in NEUTRAL.items():
        value = values.pop(name, None)
        if value is not None and value not in allowed:
            raise UserError(f"{name}: is not supported by the embedded engine (got {value!r:.80})")
    return {name: value for name, value in values.items() if value is not None and name not in IGNORED}


def _message(place: int, message: Any) -> dict[str, str]:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise ValueError(f"message {place} needs a role and a content")
    unknown = [name for name, value in message.items() if name not in MESSAGE_FIELDS and value is not None]
    if unknown:
        raise ValueError(f"message {place}: {unknown[0]} is not supported by the embedded engine")
    named = {"name": str(message["name"])} if message.get("name") is not None else {}
    return {"role": message["role"], "content": _content(place, message.get("content"))} | named


def _content(place: int, content: Any) -> str:
    """The text of a content, which may come in parts."""
    if isinstance(content, str):
        return content
    parts: Sequence[Any] = content if isinstance(content, list) else [content]
    texts = [one["text"] for one in parts if isinstance(one, dict) and isinstance(one.get("text"), str)]
    if len(texts) != len(parts):
        raise ValueError(f"message {place}: content needs a text, or parts of type text")
    return "".join(texts)


def _is_ids(value: Any) -> bool:
    if not isinstance(value, list) or not value:
        return False
    return all(isinstance(one, int) and not isinstance(one, bool) for one in value)
