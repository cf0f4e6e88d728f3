"""Requests from the log of a vLLM server, as ``--enable-log-requests`` makes it write them.

Present form (0.32), the first line only at VLLM_LOGGING_LEVEL=DEBUG::

    DEBUG 11-30 10:00:00 [...] Request ID details: prompt: 'TEXT', prompt_token_ids: [..], prompt_embeds shape: None.
    INFO 11-30 10:00:00 [...] Received request ID: params: SamplingParams(...), lora_request: None.

Older form, one line::

    INFO 11-30 10:00:00 [...] Received request ID: prompt: 'TEXT', params: SamplingParams(...), prompt_token_ids: ...
"""  # noqa: E501

from __future__ import annotations

import ast
import re

from pydantic import ValidationError

from foredraft.integration.traffic.log_times import LogClock
from foredraft.integration.traffic.outcome import BAD_VALUE, LeftOut
from foredraft.integration.traffic.records import TrafficRecord

_TEXT = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_DETAILS = re.compile(rf"Request (\S+) details: prompt: (None|{_TEXT}), prompt_token_ids: (None|\[[\d, ]*\])")
_RECEIVED = re.compile(rf"Received request (\S+?): (?:prompt: (None|{_TEXT}), )?params: (\w+)\((.*)")
_OLD_TOKENS = re.compile(r"prompt_token_ids: (\[[\d, ]*\])")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

NO_PROMPT = "a request without its prompt (vLLM logs it at VLLM_LOGGING_LEVEL=DEBUG only)"
NO_GENERATION = "a request that generates no text"

Prompt = tuple[str | None, int | None]
"""Text and number of tokens, where they are known."""


class VllmLog:
    """Reads line by line; the prompt of a request may stand in a line before it."""

    def __init__(self) -> None:
        self._prompts: dict[str, Prompt] = {}
        self._clock = LogClock()

    def read(self, line: str) -> TrafficRecord | LeftOut | None:
        """The request that a line completes; ``None`` where it is of another kind.

        A line with the details of a request is no request: it gives ``LeftOut("")``, which is not counted.
        """
        line = _COLOURS.sub("", line)
        if details := _DETAILS.search(line):
            name, text, ids = details.groups()
            self._prompts[name] = _text(text), _num_ids(ids)
            return LeftOut("")
        received = _RECEIVED.search(line)
        if received is None:
            return None
        arrival = self._clock.seconds(line[: received.start()])
        name, text, kind, rest = received.groups()
        prompt = self._prompts.pop(name, (None, None))
        if text is not None:
            tokens = _OLD_TOKENS.search(re.sub(_TEXT, "''", rest))
            prompt = _text(text), _num_ids(tokens.group(1)) if tokens else None
        try:
            return _record(kind, re.sub(_TEXT, "''", rest), prompt, arrival)
        except ValidationError:
            return LeftOut(BAD_VALUE)


def _record(kind: str, params: str, prompt: Prompt, arrival: float | None) -> TrafficRecord | LeftOut:
    """The texts in ``params`` are taken out: a stop sequence may look like a parameter."""
    if kind != "SamplingParams":
        return LeftOut(NO_GENERATION)
    text, num_tokens = prompt
    if not text and not num_tokens:
        return LeftOut(NO_PROMPT)
    max_tokens = re.search(r"\bmax_tokens=(\d+)", params)
    temperature = re.search(r"\btemperature=([\d.eE+-]+)", params)
    return TrafficRecord(
        prompt=text or None,
        prompt_tokens=num_tokens or None,
        max_tokens=int(max_tokens.group(1)) if max_tokens else None,
        temperature=float(temperature.group(1)) if temperature else None,
        arrival_s=arrival,
    )


def _text(literal: str) -> str | None:
    value = ast.literal_eval(literal)
    return value if isinstance(value, str) else None


def _num_ids(literal: str) -> int | None:
    return len(literal.split(",")) if literal not in ("None", "[]") else None
