"""Training data of the user: JSONL, each line a text, a chat or a prompt."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foredraft.integration.chat import chat_prompt_ids
from foredraft.integration.errors import UserError
from foredraft.integration.train.samples import Sample
from foredraft.integration.train.writing import Prompt, chat_opening
from foredraft.integration.workloads.json_lines import numbered_lines, parse_json

KINDS = ("text", "messages", "prompt", "turns")
ROLES = ("system", "user", "assistant")


@dataclass(frozen=True)
class DataLine:
    """One line: a text, or a chat whose last message is the user's (to be answered) or the assistant's.

    ``where`` says which line it is.
    """

    where: str
    text: str | None
    messages: tuple[dict[str, str], ...]


@dataclass(frozen=True)
class DataFiles:
    """The lines of all files, and the SHA-256 of each file's content."""

    lines: list[DataLine]
    digests: list[str]


def read_data_files(paths: Sequence[str]) -> DataFiles:
    """Every line of every file, in order. Empty lines are skipped.

    Raises:
        UserError: a file cannot be read or holds nothing, or a line is of no kind or several; names both.
    """
    # Read once: a file may be a pipe.
    contents = [_read_bytes(Path(path)) for path in paths]
    return DataFiles(
        lines=[
            line
            for path, content in zip(paths, contents, strict=True)
            for line in _data_lines(Path(path), content)
        ],
        digests=[hashlib.sha256(content).hexdigest() for content in contents],
    )


def encode_line(line: DataLine, index: int, tokenizer: Any) -> Sample | Prompt:
    """Token ids: a sample of what is complete, a prompt of what the target is to answer.

    Raises:
        UserError: the model's chat template refuses the chat.
    """
    try:
        return _encode(line, index, tokenizer)
    except UserError as error:
        raise UserError(f"{line.where}: {error}") from None


def _encode(line: DataLine, index: int, tokenizer: Any) -> Sample | Prompt:
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
    ids = chat_prompt_ids(tokenizer, messages, answered=True)
    # A template may close an answered turn differently from how it opens one to be answered.
    prompt_len = _common_length(prompt, ids)
    return Sample(index, ids, prompt_len, loss_start=prompt_len)


def _common_length(first: Sequence[int], second: Sequence[int]) -> int:
    for place, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return place
    return min(len(first), len(second))


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"--data: {path} cannot be read: {error}") from None


def _data_lines(path: Path, content: bytes) -> list[DataLine]:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"--data: {path} cannot be read: {error}") from None
    numbered = numbered_lines(text)
    if not numbered:
        raise UserError(f"--data: {path} is empty, there is no text in it")
    return [_parse(line, f"--data: {path}, line {number}") for number, line in numbered]


def _parse(line: str, where: str) -> DataLine:
    try:
        return _data_line(parse_json(line), where)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def _data_line(row: Any, where: str) -> DataLine:
    if not isinstance(row, dict):
        raise UserError(f"must be a JSON object, got {type(row).__name__}")
    kinds = [kind for kind in KINDS if kind in row]
    if len(kinds) != 1:
        raise UserError(f"needs one of {', '.join(KINDS)}; it has {', '.join(kinds) or 'none of them'}")
    value = row[kinds[0]]
    if kinds == ["text"]:
        return DataLine(where, _text(value, "text"), ())
    if kinds == ["messages"]:
        return DataLine(where, None, _messages(value))
    if kinds == ["turns"]:
        if not isinstance(value, list) or not value:
            raise UserError(f"turns must be a list of texts, got {value!r:.80}")
        value = value[0]
    return DataLine(where, None, ({"role": "user", "content": _text(value, kinds[0])},))


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
