"""The law a draft model draws a token from, and the draw."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from foredraft.verifier import MIN_TEMPERATURE, Purpose, SamplingBatch, categorical

MAX_CANDIDATES = 256
"""A draft draws from this many of its likeliest tokens at most; what it leaves out, the target still finds.

It keeps the drafting loop free of host synchronisations (the target's own truncation has some), and the
reported distributions short.
"""


@dataclass(frozen=True)
class Drawn:
    """One drafted token for each of R rows.

    Attributes:
        token_ids: [R] int64.
        probs: [R, C] float32, the exact law each token was drawn from; of a greedy row it means nothing.
            ``None`` where all rows are greedy.
        support_ids: [R, C] int64, the tokens that ``probs`` is about.
    """

    token_ids: Tensor
    probs: Tensor | None = None
    support_ids: Tensor | None = None


def draw(logits: Tensor, head_ids: Tensor | None, sampling: SamplingBatch | None, offset: int) -> Drawn:
    """Draw from the draft's law under each request's temperature, min-p, top-k and top-p, in that order.

    A greedy request gets the likeliest token. Nothing here waits for the device.

    Args:
        logits: [R, S] any float dtype.
        head_ids: [S] int64, the token of each logit; ``None`` = its index.
        sampling: of the R rows, whose ``controls`` are left to the target; ``None`` = all are greedy.
        offset: place in the draft, 0 for its first token.
    """
    if sampling is None:
        return Drawn(_tokens(logits.max(1).indices, head_ids))
    top, places = logits.float().topk(min(MAX_CANDIDATES, logits.shape[1]), sorted=True)
    weights = _weights(top, sampling)
    offsets = torch.full_like(sampling.block_starts, offset)
    drawn = categorical(weights, sampling.request_keys, sampling.block_starts, offsets, Purpose.DRAFT)
    chosen = torch.where(sampling.temperature < MIN_TEMPERATURE, 0, drawn)  # the likeliest one comes first
    support_ids = _tokens(places, head_ids)
    return Drawn(
        token_ids=support_ids.gather(1, chosen[:, None]).squeeze(1),
        probs=weights / weights.sum(1, keepdim=True),
        support_ids=support_ids,
    )


def confidence(logits: Tensor) -> Tensor:
    """Probability of the likeliest token before any sampling control: [R, S] -> [R] float32."""
    logits = logits.float()
    return torch.exp(logits.amax(1) - logits.logsumexp(1))


def _tokens(places: Tensor, head_ids: Tensor | None) -> Tensor:
    return places if head_ids is None else head_ids[places]


def _weights(top: Tensor, sampling: SamplingBatch) -> Tensor:
    """Unnormalised law of the candidates, ``top`` [R, C] logits in falling order; the first weighs 1."""
    temperature = sampling.temperature.clamp(min=MIN_TEMPERATURE)[:, None]
    weights = torch.exp((top - top[:, :1]) / temperature)
    if sampling.min_p is not None:
        weights = torch.where(weights < sampling.min_p[:, None], 0.0, weights)
    if sampling.top_k is not None:
        rank = torch.arange(top.shape[1], device=top.device)
        top_k = sampling.top_k[:, None]
        weights = torch.where((top_k > 0) & (rank >= top_k), 0.0, weights)
    if sampling.top_p is not None:
        before = weights.cumsum(1) - weights
        nucleus = before < sampling.top_p[:, None] * weights.sum(1, keepdim=True)
        nucleus[:, 0] = True  # whatever rounding does: a law must not be empty
        weights = torch.where(nucleus, weights, 0.0)
    return weights
