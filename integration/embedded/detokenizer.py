"""Token ids to text, as they come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

INCOMPLETE = "\ufffd"


class Detokenizer:
    """Text of a growing token list, at a cost per token that does not grow with it.

    Only a window is decoded: from the last token that was already turned into text (decoding a token alone
    may lose a leading space) to the newest. An incomplete character waits for its rest.
    """

    def __init__(self, tokenizer: Any, skip_special_tokens: bool) -> None:
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._token_ids: list[int] = []
        self._context = 0  # window: [context, done) gives text already out, [context, end) adds the new
        self._done = 0
        self._shown = 0  # characters of the window's text already out

    def push(self, token_ids: Sequence[int]) -> str:
        """Text that these tokens complete."""
        self._token_ids += token_ids
        text = self._window_text()
        complete = text.rstrip(INCOMPLETE)
        new = complete[self._shown :]
        if not new or len(complete) < len(text):
            self._shown += len(new)
            return new
        self._context, self._done = self._done, len(self._token_ids)
        self._shown = len(self._window_text())
        return new

    def flush(self) -> str:
        """Text still waiting for the rest of a character, as replacement characters."""
        text = self._window_text()[self._shown :]
        self._context = self._done = len(self._token_ids)
        self._shown = 0
        return text

    def _window_text(self) -> str:
        window = self._token_ids[self._context :]
        text: str = self._tokenizer.decode(window, skip_special_tokens=self._skip_special_tokens)
        return text
