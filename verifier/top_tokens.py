"""The few largest entries of each row, without a pass of ``topk`` over the whole vocabulary."""

from __future__ import annotations

import math

from torch import Tensor

from foredraft.verifier.blocks import block_entries, block_max, num_blocks

BLOCK = 64


def top_tokens(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` largest entries of each row of ``logits`` [N, V], largest first, and their token ids.

    Which of several equal entries come last is open. Looks only into the ``count`` blocks with the largest
    maxima: every entry above the last returned one lies in them.
    """
    if count >= num_blocks(logits.shape[1], BLOCK):
        whole = logits.topk(count)
        return whole.values, whole.indices
    blocks = block_max(logits, BLOCK).topk(count).indices
    entries, ids = block_entries(logits, blocks, BLOCK, missing=-math.inf)
    top = entries.topk(count)
    return top.values, ids.gather(1, top.indices)


def by_id_within_ties(values: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Put equal entries, neighbours in ``values`` [N, c], in the order of their ``ids``."""
    ids, order = ids.sort(dim=1)
    values, order = values.gather(1, order).sort(dim=1, descending=True, stable=True)
    return values, ids.gather(1, order)
