"""Training data of the user: JSONL, each line a text, a chat or a prompt."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foredraft.integration.chat import chat_prompt_ids
from foredraft.integration.errors import UserError
from foredraft.integration.train.samples import Sample
from foredraft.integration.train.writing import Prompt, chat_opening

KINDS = ("text", "messages", "prompt", "turns")
ROLES = ("system", "user", "assistant")


@dataclass(frozen=True)
class DataLine:
    """One line: a text, or a chat whose last message is the user's (to be answered) or the assistant's."""

    text: str | None
    messages: tuple[dict[str, str], ...]


def read_data_files(paths: Sequence[str]) -> list[DataLine]:
    """Every line of every file, in order. Empty lines are skipped.

    Raises:
        UserError: a file cannot be read or holds nothing, or a line is of no kind or several; names both.
    """
    return [line for path in paths for line in _read_file(Path(path))]


def encode_line(line: DataLine, index: int, tokenizer: Any) -> Sample | Prompt:
    """Token ids: a sample of what is complete, a prompt of what the target is to answer."""
    if line.text is not None:
        return Sample(index, list(tokenizer(line.text)["input_ids"]), prompt_len=0, loss_start=0)
    messages = list(line.messages)
    if messages[-1]["role"] == "assistant":
        return _answered(messages, index, tokenizer)
    ids = chat_prompt_ids(tokenizer, messages)
    opening = chat_opening(tokenizer) if getattr(tokenizer, "chat_template", None) else []
    return Prompt(index, ids, loss_start=_common_length(ids, opening))


def _answered(messages: list[dict[str, str]], index: int, tokenizer: Any) -> Sample:
    prompt = chat_prompt_ids(tokenizer, messages[:-1]) if len(messages) > 1 else []
    if getattr(tokenizer, "chat_template", None):
        ids = list(tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False))
    else:
        ids = chat_prompt_ids(tokenizer, messages)
    # A template may close an answered turn differently from how it opens one to be answered.
    prompt_len = _common_length(prompt, ids)
    return Sample(index, ids, prompt_len, loss_start=prompt_len)


def _common_length(first: Sequence[int], second: Sequence[int]) -> int:
    for place, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return place
    return min(len(first), len(second))


def _read_file(path: Path) -> list[DataLine]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--data: {path} cannot be read: {error}") from None
    # Not splitlines(): JSON strings may hold U+2028 and the like unescaped.
    numbered = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if not numbered:
        raise UserError(f"--data: {path} is empty, there is no text in it")
    return [_parse(line, f"--data: {path}, line {number}") for number, line in numbered]


def _parse(line: str, where: str) -> DataLine:
    try:
        row = json.loads(line)
        return _data_line(row)
    except json.JSONDecodeError as error:
        raise UserError(f"{where}: not JSON: {error}") from None
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def _data_line(row: Any) -> DataLine:
    if not isinstance(row, dict):
        raise UserError(f"must be a JSON object, got {type(row).__name__}")
    kinds = [kind for kind in KINDS if kind in row]
    if len(kinds) != 1:
        raise UserError(f"needs one of {', '.join(KINDS)}; it has {', '.join(kinds) or 'none of them'}")
    value = row[kinds[0]]
    if kinds == ["text"]:
        return DataLine(_text(value, "text"), ())
    if kinds == ["messages"]:
        return DataLine(None, _messages(value))
    if kinds == ["turns"]:
        if not isinstance(value, list) or not value:
            raise UserError(f"turns must be a list of texts, got {value!r:.80}")
        value = value[0]
    return DataLine(None, ({"role": "user", "content": _text(value, kinds[0])},))


def _messages(value: Any) -> tuple[dict[str, str], ...]:
    if not isinstance(value, list) or not value or not all(isinstance(one, dict) for one in value):
        raise UserError(f"messages must be a list of {{role, content}}, got {value!r:.80}")
    for message in value:
        if message.get("role") not in ROLES:
            raise UserError(f"role must be one of {', '.join(ROLES)}, got {message.get('role')!r:.80}")
        _text(message.get("content"), "content")
    if value[-1]["role"] == "system":
        raise UserError("the last message must be the user's or the assistant's, it is the system's")
    return tuple({"role": message["role"], "content": message["content"]} for message in value)


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise UserError(f"{name} must be a text that is not empty, got {value!r:.80}")
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise UserError(f"{name} is not valid text in UTF-8, got {value!r:.80}")
    return value
