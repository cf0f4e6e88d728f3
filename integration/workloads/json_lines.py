"""Lines of JSON that a user wrote: every way they can be broken becomes one line that says where."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

from foredraft.integration.errors import UserError


def numbered_lines(text: str) -> list[tuple[int, str]]:
    """The lines that are not empty, with their numbers from 1."""
    # Not splitlines(): JSON strings may hold U+2028 and the like unescaped.
    lines: Iterator[str] = io.StringIO(text, newline=None)
    return [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]


def has_lone_surrogate(text: str) -> bool:
    """Whether half of a character stands alone in it, as JSON allows and UTF-8, and so any tokenizer, not."""
    return any("\ud800" <= letter <= "\udfff" for letter in text)


def parse_json(line: str | bytes) -> Any:
    """The value on a line.

    Raises:
        UserError: it is not JSON, nested too deeply, or a number in it has thousands of digits.
    """
    try:
        return json.loads(line)
    except RecursionError:
        raise UserError("not JSON that can be read: nested too deeply") from None
    except ValueError as error:
        raise UserError(f"not JSON: {error}") from None
