"""A vocabulary cut into contiguous blocks, so that a look-up touches a few blocks and not all V tokens."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

CACHE_ENTRIES = 2**20
"""4 MiB of float32: the copies a pass makes of this much stay in a CPU's cache."""
MEMORY_ENTRIES = 2**26
"""256 MiB of float32: elsewhere only memory is bounded, because small chunks would leave a GPU idle."""


def num_blocks(vocab_size: int, size: int) -> int:
    """Blocks of ``size`` tokens that cover the vocabulary; the last one may be short."""
    return -(-vocab_size // size)


def block_reduce(values: Tensor, size: int, reduce: Callable[[Tensor], Tensor]) -> Tensor:
    """Reduce each block of ``values`` [N, V] over its tokens: [N, num_blocks]."""
    whole = values.shape[1] // size
    blocks = reduce(values[:, : whole * size].unflatten(1, (whole, size)))
    if whole * size == values.shape[1]:
        return blocks
    return torch.cat((blocks, reduce(values[:, None, whole * size :])), dim=1)


def block_sum(values: Tensor, size: int) -> Tensor:
    """Sum of each block, [N, num_blocks] float64.

    A block is added up in the dtype of ``values``: a few hundred float32 terms lose about 1e-7, and summing
    all of them in float64 takes 100 times as long.
    """
    return block_reduce(values, size, lambda block: block.sum(-1)).double()


def block_max(values: Tensor, size: int) -> Tensor:
    """Largest entry of each block, [N, num_blocks]."""
    return block_reduce(values, size, lambda block: block.amax(-1))


def block_entries(values: Tensor, blocks: Tensor, size: int, missing: float) -> tuple[Tensor, Tensor]:
    """The entries of ``values`` [N, V] in the chosen ``blocks`` [N, c], and their token ids.

    Both are [N, c * size]; places past the end of the vocabulary hold ``missing`` and an id >= V.
    """
    within = torch.arange(size, device=values.device)
    ids = (blocks[:, :, None] * size + within).flatten(1)
    if values.shape[1] % size == 0:  # no block is short
        return values.gather(1, ids), ids
    entries = values.gather(1, ids.clamp(max=values.shape[1] - 1))
    return entries.masked_fill_(ids >= values.shape[1], missing), ids


def row_chunks(values: Tensor) -> list[slice]:
    """Cuts the rows of ``values`` [N, V] into chunks to work out one after the other."""
    entries = CACHE_ENTRIES if values.device.type == "cpu" else MEMORY_ENTRIES
    step = max(1, entries // values.shape[1])
    return [slice(start, start + step) for start in range(0, len(values), step)]


def total_mass(weights: Tensor) -> Tensor:
    """Row sums of ``weights`` [N, V], [N] float64."""
    return block_sum(weights, 256).sum(-1)
