"""Batches of whole pieces of similar length, in an order that only the seed and the epoch decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from foredraft.integration.train.features import Features
from foredraft.integration.train.pieces import Piece

POOL_BATCHES = 32
"""Pieces are sorted by length within about this many batches, so that an epoch stays well mixed."""


@dataclass(frozen=True)
class Batch:
    """Pieces side by side, padded at the end; N positions of them count.

    Attributes:
        token_ids: [B, T] int64.
        states: [B, T, H], the target's hidden state of each position.
        places: [N] int64, the positions that count, in the flattened [B * T].
        log_normalisers: [N] float32.
        argmax: [N], the target's likeliest token after each position.
        num_tokens: tokens without padding.
        exit_states: [B, T, H], the target's state after the exit layer, for an exit head.
    """

    token_ids: Tensor
    states: Tensor
    places: Tensor
    log_normalisers: Tensor
    argmax: Tensor
    num_tokens: int
    exit_states: Tensor | None = None

    @property
    def target_states(self) -> Tensor:
        """[N, H], the target's hidden state at the positions that count."""
        return self.states.flatten(0, 1)[self.places]

    @property
    def state_inputs(self) -> Tensor:
        """[B, T, H] float32, what is read beside each token: the target's state before it."""
        return shifted(self.states.float())

    def given(self, embedding: Tensor) -> Tensor:
        """[B, T, H] float32, what is read of each token: the target's state at the exit, or its embedding."""
        if self.exit_states is not None:
            return self.exit_states.float()
        return F.embedding(self.token_ids, embedding).float()


def epoch_batches(lengths: Sequence[int], batch_tokens: int, seed: int, epoch: int) -> list[list[int]]:
    """Which pieces make up each batch of an epoch; every piece once.

    Args:
        lengths: tokens of each piece.
        batch_tokens: most tokens of a batch, padding included.
    """
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    order = torch.randperm(len(lengths), generator=generator).tolist()
    batches = [
        batch
        for pool in _pack(order, lengths, POOL_BATCHES * batch_tokens)
        for batch in _pack(sorted(pool, key=lambda piece: lengths[piece]), lengths, batch_tokens)
    ]
    return [batches[place] for place in torch.randperm(len(batches), generator=generator).tolist()]


def make_batch(
    pieces: Sequence[Piece],
    features: Sequence[Features],
    device: torch.device,
    exit_states: Sequence[Tensor] | None = None,
    *,
    response_only: bool,
) -> Batch:
    """Put pieces side by side.

    Position t counts if token t + 1 is one to learn, or with ``response_only`` one of the response.
    """
    token_ids = pad_sequence([torch.tensor(piece.token_ids) for piece in pieces], batch_first=True)
    states = pad_sequence([one.states for one in features], batch_first=True)
    at_exit = None
    if exit_states is not None:
        at_exit = pad_sequence(list(exit_states), batch_first=True).to(device)
    spans = [_span(piece, response_only=response_only) for piece in pieces]
    width = token_ids.shape[1]
    places = [torch.arange(row * width + span.start, row * width + span.stop) for row, span in _rows(spans)]
    return Batch(
        token_ids=token_ids.to(device),
        states=states.to(device),
        places=torch.cat(places).to(device),
        log_normalisers=torch.cat([features[row].log_normalisers[span] for row, span in _rows(spans)]).to(
            device
        ),
        argmax=torch.cat([features[row].argmax[span] for row, span in _rows(spans)]).to(device),
        num_tokens=sum(len(piece.token_ids) for piece in pieces),
        exit_states=at_exit,
    )


def shifted(states: Tensor) -> Tensor:
    """[B, T, H] -> the same one position later, zeros at position 0: the state of the position before."""
    return F.pad(states[:, :-1], (0, 0, 1, 0))


def _span(piece: Piece, *, response_only: bool) -> slice:
    first = piece.response_start if response_only else piece.loss_start
    return slice(first - 1, len(piece.token_ids) - 1)


def _rows(spans: Sequence[slice]) -> list[tuple[int, slice]]:
    return list(enumerate(spans))


def _pack(pieces: Sequence[int], lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Groups of pieces in order; group size times longest piece stays within ``max_tokens``."""
    groups: list[list[int]] = []
    longest = 0
    for piece in pieces:
        longest = max(longest, lengths[piece])
        if not groups or (len(groups[-1]) + 1) * longest > max_tokens:
            groups.append([])
            longest = lengths[piece]
        groups[-1].append(piece)
    return groups
