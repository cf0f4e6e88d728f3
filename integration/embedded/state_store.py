"""The target's last hidden states of committed tokens, for drafts that read them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from foredraft.integration.embedded.slot_cache import zeros
from foredraft.proposers.decoder import to_device


class StateStore:
    """[slots, width, H], beside the attention cache and like it rolled back by length alone.

    Args:
        width: of each slot the last ``width`` positions are kept, the older ones overwritten.
    """

    def __init__(
        self, num_slots: int, width: int, hidden_size: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.states = zeros((num_slots * width, hidden_size), dtype, device)
        self._width = width

    def write(
        self, rows: Sequence[int], starts: Sequence[int], counts: Sequence[int], hidden: Tensor
    ) -> None:
        """Store ``hidden`` [sum of counts, H] of positions [start, start + count) of each row."""
        kept: list[int] = []
        places: list[int] = []
        end = 0
        for row, start, count in zip(rows, starts, counts, strict=True):
            end += count
            num_kept = min(count, self._width)
            kept += range(end - num_kept, end)
            places += self._places(row, start + count - num_kept, num_kept)
        if len(kept) < len(hidden):
            hidden = hidden.index_select(0, to_device(kept, hidden.device))
        self.states.index_copy_(0, to_device(places, hidden.device), hidden)

    def read(self, rows: Sequence[int], starts: Sequence[int], counts: Sequence[int]) -> Tensor:
        """See ``proposers.decoder.HiddenStates``."""
        places: list[int] = []
        for row, start, count in zip(rows, starts, counts, strict=True):
            places += self._places(row, start, count)
        states = self.states.index_select(0, to_device(places, self.states.device))
        begin = 0
        for start, count in zip(starts, counts, strict=True):
            if start < 0:
                states[begin : begin - start] = 0
            begin += count
        return states

    def _places(self, row: int, start: int, count: int) -> list[int]:
        first = row * self._width
        return [first + position % self._width for position in range(start, start + count)]

    @staticmethod
    def bytes_per_position(hidden_size: int, dtype: torch.dtype) -> int:
        """Memory of one position of one slot."""
        return hidden_size * dtype.itemsize
