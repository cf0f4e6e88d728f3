"""What a request must satisfy before it may enter, and what ends it."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

from foredraft.integration.embedded.sequence import Ending
from foredraft.integration.errors import UserError
from foredraft.integration.sampling_params import SamplingParams


def checked_prompt(
    prompt: str | Sequence[int], tokenizer: Any | None, vocab_size: int, max_model_len: int
) -> list[int]:
    """Token ids of a prompt.

    Raises:
        UserError: empty, too long, token ids outside the vocabulary, or text without a tokenizer.
    """
    if isinstance(prompt, str):
        if tokenizer is None:
            raise UserError("prompt: this model has no tokenizer, give token ids instead of text")
        token_ids = list(tokenizer(prompt)["input_ids"])
    elif not isinstance(prompt, Iterable):
        raise UserError(f"prompt: needs a text or a list of token ids, got {prompt!r}")
    else:
        token_ids = [_whole_number(token) for token in prompt]
    if not token_ids:
        raise UserError("prompt: is empty, at least one token is needed")
    _check_ids("prompt", token_ids, vocab_size)
    if len(token_ids) >= max_model_len:
        raise UserError(
            f"prompt: has {len(token_ids)} tokens, which leaves no room to generate: "
            f"max_model_len is {max_model_len}"
        )
    return token_ids


def _whole_number(token: Any) -> int:
    try:
        return operator.index(token)
    except TypeError:
        raise UserError(f"prompt: token ids are whole numbers, got {token!r}") from None


def check_params(params: SamplingParams, tokenizer: Any | None, vocab_size: int) -> None:
    """Refuse controls this model cannot honour.

    Raises:
        UserError: token ids outside the vocabulary, or texts without a tokenizer.
    """
    _check_ids("logit_bias", params.logit_bias, vocab_size)
    _check_ids("allowed_token_ids", params.allowed_token_ids or (), vocab_size)
    _check_ids("stop_token_ids", params.stop_token_ids, vocab_size)
    for name in ("stop", "bad_words"):
        if getattr(params, name) and tokenizer is None:
            raise UserError(f"{name}: this model has no tokenizer, so texts cannot be matched")


def _check_ids(name: str, token_ids: Iterable[int], vocab_size: int) -> None:
    for token in token_ids:
        if not 0 <= token < vocab_size:
            raise UserError(f"{name}: token id {token} is outside the vocabulary of {vocab_size}")


def ending(params: SamplingParams, eos_ids: frozenset[int], prompt_len: int, max_model_len: int) -> Ending:
    """What ends a completion of a prompt of this length."""
    return Ending(
        eos_ids=frozenset() if params.ignore_eos else eos_ids,
        forbidden_early=tuple(sorted(eos_ids | set(params.stop_token_ids))),
        max_tokens=min(params.max_tokens, max_model_len - prompt_len),
    )


def bad_word_ids(params: SamplingParams, tokenizer: Any | None, vocab_size: int) -> list[list[int]]:
    """Each bad word as token ids, at the start of a text and after a space.

    Raises:
        UserError: the tokenizer knows tokens of it that the model does not.
    """
    variants = []
    for word in params.bad_words:
        assert tokenizer is not None, "check_params refuses bad_words without a tokenizer"
        for text in (word, " " + word.lstrip()):
            token_ids = list(tokenizer(text, add_special_tokens=False)["input_ids"])
            _check_ids("bad_words", token_ids, vocab_size)
            if token_ids and token_ids not in variants:
                variants.append(token_ids)
    return variants
