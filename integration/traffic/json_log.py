"""Requests from JSONL records in the form of OpenAI's requests, bare or in a wrapper.

The request is the object itself, or what stands under ``body`` or ``request``. Its time is under one of
``TIME_KEYS``, there or beside it; the length of the prompt under ``usage``, as in OpenAI's answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from foredraft.integration.errors import UserError
from foredraft.integration.traffic.log_times import json_seconds
from foredraft.integration.traffic.outcome import BAD_VALUE, LeftOut
from foredraft.integration.traffic.records import Message, TrafficRecord
from foredraft.integration.workloads.json_lines import parse_json

TIME_KEYS = ("arrival_s", "timestamp", "time", "ts", "created", "created_at")
BODY_KEYS = ("body", "request")

NOT_TEXT = "a request that is more than text (images, tools, several prompts)"


def read_json_line(line: str) -> TrafficRecord | LeftOut | None:
    """The request on a line; ``None`` where it holds none."""
    try:
        row = parse_json(line)
    except UserError:
        return None
    if not isinstance(row, dict):
        return None
    body = next((row[key] for key in BODY_KEYS if isinstance(row.get(key), dict)), row)
    if not {"messages", "prompt", "prompt_tokens"} & body.keys():
        return None
    try:
        return _record(row, body)
    except ValidationError:
        return LeftOut(BAD_VALUE)


def _record(row: Mapping[str, Any], body: Mapping[str, Any]) -> TrafficRecord | LeftOut:
    prompt = _prompt(body)
    if prompt is None:
        return LeftOut(NOT_TEXT)
    values = {
        "prompt_tokens": _prompt_tokens(row, body),
        "max_tokens": body.get("max_completion_tokens") or body.get("max_tokens"),
        "temperature": body.get("temperature"),
        "arrival_s": _arrival(row, body),
    }
    return TrafficRecord.model_validate(values | prompt)


def _prompt(body: Mapping[str, Any]) -> dict[str, Any] | None:
    """The field of the record that holds the prompt; ``None`` where it is not text alone."""
    if body.get("messages") is not None:
        messages = _messages(body["messages"])
        return None if messages is None else {"messages": messages}
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str):
        prompt = prompt[0]
    if isinstance(prompt, str) and prompt:
        return {"prompt": prompt}
    if isinstance(prompt, list) and prompt and all(isinstance(token, int) for token in prompt):
        return {"prompt_tokens": len(prompt)}
    return {} if prompt is None and body.get("prompt_tokens") else None


def _messages(value: Any) -> list[Message] | None:
    if not isinstance(value, list) or not value:
        return None
    found = []
    for one in value:
        text = _content(one.get("content")) if isinstance(one, dict) else None
        if text is None or not isinstance(one.get("role"), str):
            return None
        found.append(Message(role=one["role"], content=text))
    return found


def _content(value: Any) -> str | None:
    """A text, or the texts of a list of parts that are all text."""
    if isinstance(value, list) and value:
        parts = [one.get("text") if isinstance(one, dict) else None for one in value]
        return "".join(map(str, parts)) if all(isinstance(part, str) for part in parts) else None
    return value if isinstance(value, str) else None


def _prompt_tokens(row: Mapping[str, Any], body: Mapping[str, Any]) -> Any:
    """As the server counted them."""
    response = row.get("response")
    places = (body, row.get("usage"), response.get("usage") if isinstance(response, dict) else None)
    known = (place.get("prompt_tokens") for place in places if isinstance(place, dict))
    return next((count for count in known if isinstance(count, int) and count > 0), None)


def _arrival(row: Mapping[str, Any], body: Mapping[str, Any]) -> float | None:
    times = (json_seconds(place.get(key)) for place in (row, body) for key in TIME_KEYS)
    return next((one for one in times if one is not None), None)
