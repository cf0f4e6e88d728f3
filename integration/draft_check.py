"""A draft as the proposer's contract has it, or an error: what every engine asks before it verifies one."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from foredraft.verifier import PADDING, Draft, DraftProbs


def checked_draft(draft: Draft, allowed: Sequence[int], vocab_size: int) -> list[list[int]]:
    """Drafted tokens of each row.

    Raises:
        ValueError: the proposer broke its contract.
    """
    for name, ids in (("token_ids", draft.token_ids), ("lengths", draft.lengths)):
        if ids.dtype != torch.int64:
            raise ValueError(f"the draft's {name} are {ids.dtype}, not int64")
    lengths: list[int] = draft.lengths.tolist()
    if len(lengths) != len(allowed) or draft.token_ids.shape[0] != len(allowed):
        raise ValueError(f"the draft has {len(lengths)} rows for {len(allowed)} requests")
    tokens: list[list[int]] = draft.token_ids.tolist()
    for row, length, most in zip(tokens, lengths, allowed, strict=True):
        if not 0 <= length <= min(most, len(row)):
            raise ValueError(f"the draft has {length} tokens in {len(row)} columns where {most} are allowed")
        if any(not 0 <= token < vocab_size for token in row[:length]):
            raise ValueError(f"the draft {row[:length]} has tokens outside the vocabulary of {vocab_size}")
        if any(token != PADDING for token in row[length:]):
            raise ValueError(f"the draft {row} is not padded with {PADDING} from {length} on")
    if draft.probs is not None:
        _check_probs(draft.probs, len(tokens), draft.token_ids.shape[1], vocab_size)
    return [row[:length] for row, length in zip(tokens, lengths, strict=True)]


def _check_probs(probs: DraftProbs, num_rows: int, num_places: int, vocab_size: int) -> None:
    """Everything about the reported distributions that would make the verifier fail, but not their values."""
    rows: list[int] = probs.rows.tolist()
    if probs.rows.dtype != torch.int64 or rows != sorted({row for row in rows if 0 <= row < num_rows}):
        raise ValueError(f"draft.probs.rows is {rows}, not increasing rows of {num_rows} as int64")
    support = probs.support_ids
    shape = (len(rows), num_places, vocab_size if support is None else support.shape[-1])
    if probs.probs.dtype != torch.float32 or probs.probs.shape != shape:
        got = f"{tuple(probs.probs.shape)} {probs.probs.dtype}"
        raise ValueError(f"draft.probs.probs is {got}, expected {shape} as float32")
    if support is None:
        return
    if support.dtype != torch.int64 or support.shape not in (shape, shape[-1:]):
        got = f"{tuple(support.shape)} {support.dtype}"
        raise ValueError(f"draft.probs.support_ids is {got}, expected {shape} or {shape[-1:]} as int64")
    if bool(((support < 0) | (support >= vocab_size)).any()):
        raise ValueError(f"draft.probs.support_ids has tokens outside the vocabulary of {vocab_size}")
