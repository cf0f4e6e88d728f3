"""The target's last hidden states of every committed token, for drafts that read them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from foredraft.integration.embedded.slot_cache import zeros
from foredraft.proposers.decoder import to_device


class StateStore:
    """[slots, capacity, H], beside the attention cache and like it rolled back by length alone."""

    def __init__(
        self, num_slots: int, capacity: int, hidden_size: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.states = zeros((num_slots * capacity, hidden_size), dtype, device)
        self._capacity = capacity

    def write(self, places: Tensor, hidden: Tensor) -> None:
        """Store ``hidden`` [T, H] at ``places`` [T] (slot * capacity + position)."""
        self.states.index_copy_(0, places, hidden)

    def read(self, rows: Sequence[int], starts: Sequence[int], counts: Sequence[int]) -> Tensor:
        """See ``proposers.decoder.HiddenStates``."""
        places = [
            row * self._capacity + max(position, 0)
            for row, start, count in zip(rows, starts, counts, strict=True)
            for position in range(start, start + count)
        ]
        states = self.states.index_select(0, to_device(places, self.states.device))
        begin = 0
        for start, count in zip(starts, counts, strict=True):
            if start < 0:
                states[begin : begin - start] = 0
            begin += count
        return states

    @staticmethod
    def bytes_per_position(hidden_size: int, dtype: torch.dtype) -> int:
        """Memory of one position of one slot."""
        return hidden_size * dtype.itemsize
