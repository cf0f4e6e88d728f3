"""Hidden states of targets that are elsewhere, and what stands in for those that have not come yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from foredraft.proposers.decoder import DraftDecoder, HiddenStates, Tokens, to_device


class StateRows(HiddenStates, Protocol):
    """Hidden states of cache rows, to read and to write."""

    states: Tensor

    def write(
        self, rows: Sequence[int], starts: Sequence[int], counts: Sequence[int], hidden: Tensor
    ) -> None:
        """Store ``hidden`` [sum of counts, H] of positions [start, start + count) of each row."""
        ...


class TargetStates:
    """See ``proposers.decoder.HiddenStates``. Tells the target's own states from stand-ins.

    Where a draft runs ahead of its target, its own states stand in for the target's, as they do within a
    draft. They never replace one that the target has sent.

    Args:
        rows: what keeps them.
    """

    def __init__(self, rows: StateRows) -> None:
        self._rows = rows
        self._known: dict[int, int] = {}

    @property
    def size(self) -> int:
        """Values of one state."""
        return self._rows.states.shape[1]

    def known(self, row: int) -> int:
        """Leading positions of a row that have the target's state."""
        return self._known.get(row, 0)

    def clear(self, row: int) -> None:
        """The row gets another owner."""
        self._known[row] = 0

    def write(self, row: int, start: int, hidden: Tensor) -> None:
        """States from the target, of positions from ``start`` on, which is not beyond what is known."""
        first = self.known(row)
        assert start <= first, "states come without gaps"
        new = hidden[first - start :]
        if len(new):
            own = self._rows.states
            self._rows.write([row], [first], [len(new)], new.to(own.device, own.dtype))
            self._known[row] = first + len(new)

    def stand_in(
        self, rows: Sequence[int], starts: Sequence[int], counts: Sequence[int], hidden: Tensor
    ) -> None:
        """The draft's own states, as ``StateRows.write``; kept where the target's are missing."""
        kept: list[int] = []
        firsts, nums, end = [], [], 0
        for row, start, count in zip(rows, starts, counts, strict=True):
            end += count
            num = min(count, max(start + count - self.known(row), 0))
            kept += range(end - num, end)
            firsts.append(start + count - num)
            nums.append(num)
        if kept:
            own = hidden if len(kept) == len(hidden) else hidden[to_device(kept, hidden.device)]
            self._rows.write(rows, firsts, nums, own.to(self._rows.states.dtype))

    def read(self, rows: Sequence[int], starts: Sequence[int], counts: Sequence[int]) -> Tensor:
        """See ``HiddenStates``."""
        return self._rows.read(rows, starts, counts)


class StandInDecoder:
    """A draft's decoder that keeps what comes out of it as stand-ins; see ``DraftDecoder``."""

    def __init__(self, decoder: DraftDecoder, states: TargetStates) -> None:
        self._decoder, self._states = decoder, states
        self.num_rows, self.capacity, self.max_len = decoder.num_rows, decoder.capacity, decoder.max_len
        self.device, self.vocab_size = decoder.device, decoder.vocab_size

    def forward(self, tokens: Tokens, *, states: Tensor | None = None) -> Tensor:
        """See ``DraftDecoder``."""
        hidden = self._decoder.forward(tokens, states=states)
        self._states.stand_in(tokens.row_ids, tokens.starts, tokens.query_lens, hidden)
        return hidden

    def head(self, hidden: Tensor) -> Tensor:
        """See ``DraftDecoder``."""
        return self._decoder.head(hidden)

    def valid_len(self, row: int) -> int:
        """See ``DraftDecoder``."""
        return self._decoder.valid_len(row)

    def truncate(self, row: int, length: int) -> None:
        """See ``DraftDecoder``."""
        self._decoder.truncate(row, length)
