"""What a training reads, batch by batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from foredraft.integration.train.batches import Batch, epoch_batches, make_batch
from foredraft.integration.train.features import Features
from foredraft.integration.train.pieces import Piece


@dataclass(frozen=True)
class TrainingData:
    """Pieces and their features, place by place; for an exit head, their states at the exit too."""

    pieces: Sequence[Piece]
    features: Sequence[Features]
    exit_states: Sequence[Tensor] | None = None

    def part(self, *, held_out: bool) -> TrainingData:
        """Only the held-out ones, or only the others; of those held out, the ones that have a response."""
        kept = [
            place
            for place, piece in enumerate(self.pieces)
            if piece.held_out == held_out and (not held_out or piece.response_start < len(piece.token_ids))
        ]
        return TrainingData(*self._at(kept))

    def batch(self, places: Sequence[int], device: torch.device, *, response_only: bool) -> Batch:
        """Some of the pieces side by side."""
        pieces, features, exit_states = self._at(places)
        return make_batch(pieces, features, device, exit_states, response_only=response_only)

    def epoch(self, batch_tokens: int, seed: int, epoch: int) -> list[list[int]]:
        """The batches of an epoch."""
        return epoch_batches([len(piece.token_ids) for piece in self.pieces], batch_tokens, seed, epoch)

    def _at(self, places: Sequence[int]) -> tuple[list[Piece], list[Features], list[Tensor] | None]:
        exit_states = None if self.exit_states is None else [self.exit_states[at] for at in places]
        return [self.pieces[at] for at in places], [self.features[at] for at in places], exit_states
