"""Reading a draft's reported distributions, dense or sparse, one position at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from foredraft.verifier.draft import DraftProbs


def drafted_token_probs(probs: DraftProbs, entries: Tensor, token_ids: Tensor) -> Tensor:
    """The reported probability of each drafted token; 0 where the support lacks it.

    Args:
        entries: [R] int64, which entries of ``probs.rows``.
        token_ids: [R, K] int64; what stands past a draft's length gives a meaningless value.

    Returns:
        [R, K] float32.
    """
    if probs.support_ids is None:
        place = torch.arange(token_ids.shape[1], device=token_ids.device)
        return probs.probs[entries[:, None], place, token_ids.clamp(min=0)]
    support = probs.support_ids if probs.support_ids.dim() == 1 else probs.support_ids[entries]
    return (probs.probs[entries] * (support == token_ids[:, :, None])).sum(2)


def subtract_draft_probs(weights: Tensor, probs: DraftProbs, entries: Tensor, offset: Tensor) -> None:
    """Subtract the draft's distribution at one position per row from ``weights`` [R, V], in place.

    Args:
        entries: [R] int64, which entries of ``probs.rows``.
        offset: [R] int64, position in the draft, below its length.
    """
    # A row of a flat view: index_select copies whole rows several times as fast as indexing by pairs.
    place = entries * probs.probs.shape[1] + offset
    at_offset = probs.probs.flatten(0, 1).index_select(0, place)
    if probs.support_ids is None:
        weights.sub_(at_offset)
        return
    shared = probs.support_ids.dim() == 1
    support = probs.support_ids.expand_as(at_offset) if shared else probs.support_ids.flatten(0, 1)[place]
    weights.scatter_add_(1, support, at_offset.neg_())
