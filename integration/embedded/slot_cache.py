"""Keys and values of every running sequence: one slot each, rolled back by setting a length."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from foredraft.integration.row_lengths import RowLengths


class SlotCache(RowLengths):
    """[slots, kv heads, capacity, head dim] per layer, allocated once.

    A slot's first ``lengths[slot]`` positions are valid. What lies beyond is left over from rejected drafts
    or a former owner; it is never read, because attention ends at the valid length, and the next tokens
    overwrite it.
    """

    def __init__(
        self,
        num_layers: int,
        num_slots: int,
        num_kv_heads: int,
        capacity: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        shape = (num_layers, num_slots, num_kv_heads, capacity, head_dim)
        super().__init__(num_slots, capacity)
        self.keys = zeros(shape, dtype, device)
        self.values = zeros(shape, dtype, device)
        self.num_slots = num_slots
        self.num_kv_heads = num_kv_heads
        self.key_size = num_kv_heads * head_dim

    def flat_index(self, slots: Tensor, positions: Tensor) -> Tensor:
        """[T] slots and positions -> [T * kv heads] rows of the cache as [slots * heads * capacity, D]."""
        heads = torch.arange(self.num_kv_heads, device=slots.device)
        return ((slots[:, None] * self.num_kv_heads + heads) * self.capacity + positions[:, None]).flatten()

    def write(self, layer: int, flat_index: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store [T, kv heads, D] keys and values of one layer at ``flat_index``."""
        head_dim = keys.shape[-1]
        self.keys[layer].view(-1, head_dim).index_copy_(0, flat_index, keys.reshape(-1, head_dim))
        self.values[layer].view(-1, head_dim).index_copy_(0, flat_index, values.reshape(-1, head_dim))

    @staticmethod
    def bytes_per_position(num_layers: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype) -> int:
        """Memory of one position of one slot, keys and values of all layers."""
        return 2 * num_layers * num_kv_heads * head_dim * dtype.itemsize


def zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros to be overwritten place by place.

    Not empty: masked positions are multiplied by 0, and 0 * NaN left in old memory is NaN. On a CPU they come
    from calloc, so that memory is taken page by page as it is written; ``torch.zeros`` writes all of it at
    once, seconds and gigabytes that a short run never needs.
    """
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    raw = np.zeros(math.prod(shape) * dtype.itemsize, dtype=np.uint8)
    return torch.from_numpy(raw).view(dtype).view(shape)
