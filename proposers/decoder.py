"""What a model looks like to a proposer, and to the engine: layers over a cache that rolls back by length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor


@dataclass(frozen=True)
class Tokens:
    """The ragged tokens of one pass, row after row.

    Attributes:
        token_ids: [T] int64.
        row_ids: [R] distinct cache rows, one per sequence in the pass.
        starts: [R], position of each row's first token in its sequence; what lies before it must be valid.
        query_lens: [R] >= 1, tokens of each row; sum = T.
    """

    token_ids: Tensor
    row_ids: Sequence[int]
    starts: Sequence[int]
    query_lens: Sequence[int]


def to_device(values: Sequence[Any], device: torch.device) -> Tensor:
    """Numbers as an int64 tensor, without waiting for the device."""
    return torch.tensor(values, dtype=torch.int64).to(device, non_blocking=True)


def follows(tokens: Tokens, last: Tokens) -> bool:
    """Whether each row, one token long as in ``last``, goes on with one token more."""
    return (
        max(tokens.query_lens) == 1
        and list(tokens.row_ids) == list(last.row_ids)
        and list(tokens.starts) == [start + 1 for start in last.starts]
    )


class HiddenStates(Protocol):
    """The target's last hidden states, after its final norm, of every committed token but the newest."""

    def read(self, rows: Sequence[int], starts: Sequence[int], counts: Sequence[int]) -> Tensor:
        """States of positions [start, start + count) of each cache row, row after row: [sum of counts, H].

        Position -1 stands before the text: zeros. The newest token's state does not exist yet.
        """
        ...


class DraftDecoder(Protocol):
    """What drafts token by token over cache rows: a small model, or the first layers of the target.

    Attributes:
        num_rows: cache rows.
        capacity: positions per row.
        max_len: longest sequence the model itself can take.
        device: where its tensors live.
        vocab_size: it reads token ids below this.
    """

    num_rows: int
    capacity: int
    max_len: int
    device: torch.device
    vocab_size: int

    def forward(self, tokens: Tokens, *, states: Tensor | None = None) -> Tensor:
        """Read tokens and return the hidden states that ``head`` takes, [T, H].

        Keys and values are written into the rows in place, and each row's valid length becomes the end of
        what was written.

        Args:
            states: [T, H], hidden states to read beside the tokens, for a draft that does.

        Raises:
            ValueError: a row would grow past ``capacity``, or starts beyond its valid length.
        """
        ...

    def head(self, hidden: Tensor) -> Tensor:
        """Vocabulary projection: [N, H] -> logits [N, V], or [N, S] where a draft knows only S tokens."""
        ...

    def valid_len(self, row: int) -> int:
        """How many leading positions of the row hold keys and values."""
        ...

    def truncate(self, row: int, length: int) -> None:
        """Roll the row back to ``length`` positions. Sets a number; nothing is copied."""
        ...


class Decoder(DraftDecoder, Protocol):
    """A whole causal decoder over cache rows, which can be run in parts.

    Attributes:
        hidden_states: the last hidden states of what it has read, ``None`` where they are not kept.
    """

    num_layers: int
    hidden_states: HiddenStates | None

    def forward(
        self,
        tokens: Tokens,
        layers: tuple[int, int] | None = None,
        hidden: Tensor | None = None,
        states: Tensor | None = None,
    ) -> Tensor:
        """Run layers [a, b) (all, by default) and return the hidden states, [T, H].

        As ``DraftDecoder.forward``. With ``hidden`` ([T, H], the output of layer a - 1) the embedding is
        skipped. The last layer's output comes with the model's final norm applied: it is what ``head`` takes.
        """
        ...
