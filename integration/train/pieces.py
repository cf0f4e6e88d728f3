"""Texts as the target and the draft read them: cut where they are too long."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from foredraft.integration.errors import UserError
from foredraft.integration.train.samples import Sample
from foredraft.integration.train.settings import PIECE_TOKENS


@dataclass(frozen=True)
class Piece:
    """A text of at least two tokens, read on its own.

    Attributes:
        loss_start: first token whose prediction is learned, >= 1.
        response_start: first token of the response, >= 1; from there on acceptance is measured.
    """

    token_ids: list[int]
    loss_start: int
    response_start: int
    held_out: bool


def cut(samples: Iterable[Sample], max_tokens: int = PIECE_TOKENS) -> list[Piece]:
    """Pieces of at most ``max_tokens``, in order; those with nothing to learn are left out."""
    return [
        piece
        for sample in samples
        for start in range(0, len(sample.token_ids), max_tokens)
        if (piece := _piece(sample, start, max_tokens)).loss_start < len(piece.token_ids)
    ]


def check_usable(samples: list[Sample], pieces: list[Piece]) -> None:
    """Refuse data that nothing can be learned from, or measured on.

    Raises:
        UserError: nothing but one-token responses, no text to train on, or none to hold out.
    """
    if not samples:
        raise UserError("--data: empty, there is no text to train on")
    if all(len(sample.token_ids) - sample.prompt_len <= 1 for sample in samples):
        raise UserError(
            f"--data: all {len(samples)} responses have at most one token; nothing can be drafted in them"
        )
    for part, found in (
        ("train on", [piece for piece in pieces if not piece.held_out]),
        ("hold out", [piece for piece in pieces if piece.held_out and _has_response(piece)]),
    ):
        if not found:
            raise UserError(f"--data: {len(samples)} samples are too few, none of them is left to {part}")


def _piece(sample: Sample, start: int, max_tokens: int) -> Piece:
    ids = sample.token_ids[start : start + max_tokens]
    return Piece(
        token_ids=ids,
        loss_start=max(1, sample.loss_start - start),
        response_start=min(len(ids), max(1, sample.prompt_len - start)),
        held_out=sample.held_out,
    )


def _has_response(piece: Piece) -> bool:
    return piece.response_start < len(piece.token_ids)
