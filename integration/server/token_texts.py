"""Log-probabilities in OpenAI's two forms."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

from foredraft.integration.engine import Logprob, PositionLogprobs

LOWEST = -9999.0
"""JSON has no minus infinity."""


class TokenTexts:
    """What single tokens read like.

    Args:
        tokenizer: copied, for the engine's thread uses it too; ``None`` = tokens go by their numbers.
    """

    def __init__(self, tokenizer: Any | None) -> None:
        self._tokenizer = copy.deepcopy(tokenizer)
        self._known: dict[int, str] = {}

    def of(self, token: int) -> str:
        """The text of a token."""
        text = self._known.get(token)
        if text is None:
            text = f"token_id:{token}" if self._tokenizer is None else self._tokenizer.decode([token])
            self._known[token] = text
        return text

    def completion_logprobs(
        self, token_ids: Sequence[int], entries: Sequence[PositionLogprobs], text_offset: int
    ) -> dict[str, Any]:
        """As ``/v1/completions`` has them.

        Args:
            text_offset: letters of the tokens before.
        """
        texts = [self.of(token) for token in token_ids]
        offsets = [text_offset + sum(map(len, texts[:place])) for place in range(len(texts))]
        return {
            "text_offset": offsets,
            "token_logprobs": [
                _finite(entry[token]) for token, entry in zip(token_ids, entries, strict=True)
            ],
            "tokens": texts,
            "top_logprobs": [
                {self.of(token): _finite(one) for token, one in entry.items()} for entry in entries
            ],
        }

    def chat_logprobs(
        self, token_ids: Sequence[int], entries: Sequence[PositionLogprobs], num_top: int
    ) -> dict[str, Any]:
        """As ``/v1/chat/completions`` has them."""
        return {
            "content": [
                self._chat_token(token, entry[token])
                | {
                    "top_logprobs": [
                        self._chat_token(other, one)
                        for other, one in sorted(entry.items(), key=lambda item: item[1].rank)[:num_top]
                    ]
                }
                for token, entry in zip(token_ids, entries, strict=True)
            ]
        }

    def _chat_token(self, token: int, logprob: Logprob) -> dict[str, Any]:
        text = self.of(token)
        # A token may be part of a letter only; then its bytes cannot be told from its text.
        whole = "\ufffd" not in text
        return {
            "token": text,
            "logprob": _finite(logprob),
            "bytes": list(text.encode("utf-8", "surrogatepass")) if whole else None,
        }


def _finite(logprob: Logprob) -> float:
    return max(logprob.logprob, LOWEST) if not math.isnan(logprob.logprob) else LOWEST
