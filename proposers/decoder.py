"""What a model looks like to a proposer, and to the engine: layers over a cache that rolls back by length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class Tokens:
    """The ragged tokens of one pass, row after row.

    Attributes:
        token_ids: [T] int64.
        positions: [T] int64, place of each token in its sequence.
        row_ids: [R] cache rows, one per sequence in the pass.
        query_lens: [R], tokens of each sequence; sum = T.
    """

    token_ids: Tensor
    positions: Tensor
    row_ids: Sequence[int]
    query_lens: Sequence[int]


class Decoder(Protocol):
    """A causal decoder over cache rows.

    ``forward`` writes keys and values of its tokens into their rows, in place, at their positions. It sets a
    row's valid length to the end of what it wrote; writing past ``capacity`` raises ``ValueError``.
    """

    num_layers: int
    vocab_size: int
    capacity: int

    def forward(self, tokens: Tokens, layers: tuple[int, int], hidden: Tensor | None = None) -> Tensor:
        """Run layers [a, b) and return the hidden states, [T, H].

        With ``hidden`` ([T, H], the output of layer a - 1) the embedding is skipped. The final norm belongs
        to ``head``, not to the last layer.
        """
        ...

    def head(self, hidden: Tensor) -> Tensor:
        """Final norm and vocabulary projection: [N, H] -> logits [N, V]."""
        ...

    def valid_len(self, row: int) -> int:
        """How many positions of the row hold keys and values of committed tokens."""
        ...

    def truncate(self, row: int, length: int) -> None:
        """Roll the row back to ``length`` positions. Sets a number; nothing is copied."""
        ...
