"""Chat messages to the token ids a model was trained to answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from jinja2.exceptions import TemplateError

from foredraft.integration.errors import UserError


def chat_prompt_ids(
    tokenizer: Any, messages: Sequence[Mapping[str, str]], *, answered: bool = False
) -> list[int]:
    """Token ids of a conversation, ending where the model is to answer.

    A model without a chat template gets the contents as plain text, one message per paragraph.

    Args:
        messages: ``{"role": ..., "content": ...}`` each.
        answered: the last message is the model's answer already, nothing is opened behind it.

    Raises:
        UserError: the chat template does not take these messages.
    """
    if getattr(tokenizer, "chat_template", None):
        with template_errors():
            ids = tokenizer.apply_chat_template(
                list(messages), add_generation_prompt=not answered, tokenize=True, return_dict=False
            )
        return list(ids)
    return list(tokenizer("\n\n".join(message["content"] for message in messages))["input_ids"])


@contextmanager
def template_errors() -> Iterator[None]:
    """Turn what a chat template raises into the user's error: many refuse roles, or their order."""
    try:
        yield
    except TemplateError as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"prompt: the model's chat template refuses it: {reason}") from None
