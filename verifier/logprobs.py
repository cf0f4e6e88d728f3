"""Log-probabilities of emitted tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class TokenLogprobs:
    """Log-probabilities at N positions, natural logarithm.

    Attributes:
        logprobs: [N] float32, of the given tokens.
        ranks: [N] int64, 1 = likeliest; tokens as likely as the given one count before it, as in vLLM.
        top_ids: [N, num_top] int64, likeliest first.
        top_logprobs: [N, num_top] float32.
    """

    logprobs: Tensor
    ranks: Tensor
    top_ids: Tensor
    top_logprobs: Tensor


def token_logprobs(logits: Tensor, token_ids: Tensor, num_top: int) -> TokenLogprobs:
    """Log-probabilities under the softmax of ``logits`` (raw: before any sampling control).

    Args:
        logits: [N, V] any float dtype; not modified.
        token_ids: [N] int64.
    """
    logits = logits.float()
    normaliser = logits.logsumexp(dim=1, keepdim=True)
    chosen = logits.gather(1, token_ids[:, None])
    top = torch.topk(logits, num_top, dim=1)
    return TokenLogprobs(
        logprobs=(chosen - normaliser).squeeze(1),
        ranks=(logits >= chosen).sum(1),
        top_ids=top.indices,
        top_logprobs=top.values - normaliser,
    )
