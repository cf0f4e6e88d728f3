"""Chat messages to the token ids a model was trained to answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def chat_prompt_ids(tokenizer: Any, messages: Sequence[Mapping[str, str]]) -> list[int]:
    """Token ids of a conversation, ending where the model is to answer.

    A model without a chat template gets the contents as plain text, one message per paragraph.

    Args:
        messages: ``{"role": ..., "content": ...}`` each.
    """
    if getattr(tokenizer, "chat_template", None):
        return list(
            tokenizer.apply_chat_template(
                list(messages), add_generation_prompt=True, tokenize=True, return_dict=False
            )
        )
    return list(tokenizer("\n\n".join(message["content"] for message in messages))["input_ids"])
