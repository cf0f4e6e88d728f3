"""Token ids to text, as they come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

INCOMPLETE = "\ufffd"


class Detokenizer:
    """Text of a growing token list, at a cost per token that does not grow with it.

    Only a window is decoded: from the last token that was already turned into text (decoding a token alone
    may lose a leading space) to the newest. Text that ends in an incomplete character waits for its rest.
    """

    def __init__(self, tokenizer: Any, skip_special_tokens: bool) -> None:
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._token_ids: list[int] = []
        self._context = 0  # window: [context, done) gives the text already out, [context, end) adds the new
        self._done = 0

    def push(self, token_ids: Sequence[int]) -> str:
        """Text that these tokens complete."""
        self._token_ids += token_ids
        new = self._window_text(len(self._token_ids))
        old = self._window_text(self._done)
        if len(new) <= len(old) or new.endswith(INCOMPLETE):
            return ""
        self._context, self._done = self._done, len(self._token_ids)
        return new[len(old) :]

    def flush(self) -> str:
        """Text still waiting for the rest of a character, as replacement characters."""
        text = self._window_text(len(self._token_ids))[len(self._window_text(self._done)) :]
        self._context = self._done = len(self._token_ids)
        return text

    def _window_text(self, end: int) -> str:
        window = self._token_ids[self._context : end]
        text: str = self._tokenizer.decode(window, skip_special_tokens=self._skip_special_tokens)
        return text
