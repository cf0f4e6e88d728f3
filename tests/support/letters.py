"""A target that writes a known text byte by byte, and one that writes random letters."""

from __future__ import annotations

import torch
from toys import TableDecoder, byte_tokenizer

TEXT_VOCAB = 257
TOKENIZER = byte_tokenizer()
TEXT = "abcdé€fgh😀ijklmnop"  # no byte occurs twice, so each token alone tells which one follows


def token_ids(text: str) -> list[int]:
    """One token per byte."""
    ids: list[int] = TOKENIZER(text)["input_ids"]
    return ids


def text_decoder(num_rows: int = 4) -> TableDecoder:
    """Writes ``TEXT``, over and over."""
    ids = token_ids(TEXT)
    table = torch.zeros(TEXT_VOCAB, TEXT_VOCAB)
    table[ids, ids[1:] + ids[:1]] = 20.0
    return TableDecoder(table, num_rows, capacity=128)


def letter_decoder(num_rows: int = 4) -> TableDecoder:
    """Random logits that favour lower-case letters; greedy output soon runs in a circle."""
    table = torch.randn(TEXT_VOCAB, TEXT_VOCAB, generator=torch.Generator().manual_seed(4))
    letters = token_ids("abcdefghijklmnopqrstuvwxyz")
    table[:, letters] += 20.0
    return TableDecoder(table, num_rows, capacity=128)
