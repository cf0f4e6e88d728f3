"""Recorded traffic: JSONL, one request a line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from foredraft.integration.errors import UserError
from foredraft.integration.workloads.json_lines import has_lone_surrogate, numbered_lines, parse_json


def _whole(text: str) -> str:
    if has_lone_surrogate(text):
        raise ValueError("a lone surrogate, which is no character")
    return text


Text = Annotated[str, AfterValidator(_whole)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Message(_Strict):
    """One turn of a chat."""

    role: Text
    content: Text


class TrafficRecord(_Strict):
    """One request: ``messages`` or ``prompt``, or without any text ``prompt_tokens``.

    Attributes:
        prompt: sent as it is, without a chat template.
        prompt_tokens: how long the prompt was.
        max_tokens: asked for; ``None`` where the request did not say; so it is for ``temperature``.
        arrival_s: seconds after the first request; ``None`` = unknown.
    """

    messages: tuple[Message, ...] | None = Field(default=None, min_length=1)
    prompt: Text | None = Field(default=None, min_length=1)
    prompt_tokens: int | None = Field(default=None, ge=1, le=10_000_000)
    max_tokens: int | None = Field(default=None, ge=1, le=10_000_000)
    temperature: float | None = Field(default=None, ge=0)
    arrival_s: float | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _has_one_prompt(self) -> TrafficRecord:
        if self.messages is not None and self.prompt is not None:
            raise ValueError("messages and prompt exclude each other")
        if self.messages is None and self.prompt is None and self.prompt_tokens is None:
            raise ValueError("needs messages, prompt or prompt_tokens")
        return self


def read_traffic(path: Path, limit: int | None = None) -> list[TrafficRecord]:
    """The requests in the order of their arrival, which begins at 0; in that of the file without arrivals.

    Args:
        limit: so many at most.

    Raises:
        UserError: a file that cannot be read, a line that is no request, arrivals of some lines only.
    """
    try:
        lines = numbered_lines(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--traffic: {str(path)!r} cannot be read: {error}") from None
    records = [_record(path, number, line) for number, line in lines]
    if not records:
        raise UserError(f"--traffic: {str(path)!r} holds no request")
    return in_order(records, f"--traffic: {str(path)!r}")[:limit]


def in_order(records: Sequence[TrafficRecord], where: str) -> list[TrafficRecord]:
    """Sorted by arrival, the first at 0.

    Raises:
        UserError: some have an arrival and some have none; ``where`` begins the text.
    """
    arrivals = [record.arrival_s for record in records if record.arrival_s is not None]
    if not arrivals:
        return list(records)
    if len(arrivals) < len(records):
        raise UserError(f"{where}: arrival_s must be in every line or in none")
    shifted = [
        record.model_copy(update={"arrival_s": arrival - min(arrivals)})
        for record, arrival in zip(records, arrivals, strict=True)
    ]
    return sorted(shifted, key=lambda record: record.arrival_s or 0.0)


def record_line(record: TrafficRecord) -> str:
    """The record as a line of JSON; what is unknown is left out."""
    return record.model_dump_json(exclude_none=True) + "\n"


def _record(path: Path, number: int, line: str) -> TrafficRecord:
    where = f"--traffic: {str(path)!r}, line {number}"
    try:
        return TrafficRecord.model_validate(parse_json(line))
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    except ValidationError as error:
        fault = error.errors()[0]
        field = ".".join(str(part) for part in fault["loc"])
        got = f" (got {fault['input']!r:.80})" if field else ""
        raise UserError(f"{where}: {f'{field}: ' if field else ''}{fault['msg']}{got}") from None
