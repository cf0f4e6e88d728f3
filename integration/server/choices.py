"""What clients read: choices, usage, and the documents and events they come in."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any

from foredraft.integration.engine import CompletionOutput
from foredraft.integration.sampling_params import SamplingParams
from foredraft.integration.server.deltas import Delta, DeltaReader
from foredraft.integration.server.token_texts import TokenTexts


class Writer:
    """Writes one answer in OpenAI's form. What is sent piece by piece adds up to what is sent whole.

    Args:
        chat: the form of a chat, else that of a completion.
        token_ids: whether to show them beside the text.
    """

    def __init__(
        self, model: str, chat: bool, params: SamplingParams, token_ids: bool, texts: TokenTexts
    ) -> None:
        self._chat = chat
        self._params = params
        self._token_ids = token_ids
        self._texts = texts
        kind = "chat.completion" if chat else "text_completion"
        self._kinds = {False: kind, True: f"{kind}.chunk" if chat else kind}
        self._id = f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}"
        self._model = model
        self._created = int(time.time())
        self._readers: dict[int, DeltaReader] = {}
        self._offsets: dict[int, int] = {}

    def document(self, choices: Sequence[dict[str, Any]], usage: Any, *, piece: bool) -> dict[str, Any]:
        """A whole answer, or an event of a stream."""
        return {
            "id": self._id,
            "object": self._kinds[piece],
            "created": self._created,
            "model": self._model,
            "choices": list(choices),
            "usage": usage,
        }

    def opening(self, index: int) -> dict[str, Any]:
        """The first piece of a choice of a chat: who speaks."""
        return self._choice(index, {"delta": {"role": "assistant", "content": ""}}, None, None)

    def whole(self, index: int, output: CompletionOutput, prompt_ids: Sequence[int]) -> dict[str, Any]:
        """A finished choice."""
        delta = DeltaReader().read(output)
        if self._chat:
            content: dict[str, Any] = {"message": {"role": "assistant", "content": delta.text}}
        else:
            content = {"text": delta.text}
        return self._filled(index, content, delta, prompt_ids)

    def piece(self, index: int, output: CompletionOutput, prompt_ids: Sequence[int]) -> dict[str, Any] | None:
        """What a choice gained; ``None`` = nothing that is shown."""
        delta = self._readers.setdefault(index, DeltaReader()).read(output)
        shown = delta.text or delta.finish_reason or delta.logprobs or (self._token_ids and delta.token_ids)
        if not shown:
            return None
        content: dict[str, Any] = {"text": delta.text}
        if self._chat:
            content = {"delta": {"content": delta.text} if delta.text else {}}
        return self._filled(index, content, delta, prompt_ids if delta.first_token == 0 else None)

    def _filled(
        self, index: int, content: dict[str, Any], delta: Delta, prompt_ids: Sequence[int] | None
    ) -> dict[str, Any]:
        if self._token_ids:
            content = content | {"token_ids": delta.token_ids, "prompt_token_ids": prompt_ids}
        choice = self._choice(index, content, delta.finish_reason, self._logprobs(index, delta))
        return choice | {"stop_reason": delta.stop_reason}

    def _logprobs(self, index: int, delta: Delta) -> dict[str, Any] | None:
        if delta.logprobs is None:
            return None
        if self._chat:
            return self._texts.chat_logprobs(delta.token_ids, delta.logprobs, self._params.logprobs or 0)
        offset = self._offsets.get(index, 0)
        self._offsets[index] = offset + sum(len(self._texts.of(token)) for token in delta.token_ids)
        return self._texts.completion_logprobs(delta.token_ids, delta.logprobs, offset)

    def _choice(
        self, index: int, content: dict[str, Any], finish_reason: str | None, logprobs: Any
    ) -> dict[str, Any]:
        return {"index": index, **content, "logprobs": logprobs, "finish_reason": finish_reason}


def usage_of(num_prompt_tokens: int, num_tokens: int) -> dict[str, int]:
    """OpenAI's ``usage``."""
    return {
        "prompt_tokens": num_prompt_tokens,
        "completion_tokens": num_tokens,
        "total_tokens": num_prompt_tokens + num_tokens,
    }
