"""Log-probabilities of emitted and prompt tokens, in the shape users see."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from foredraft.integration.engine import Logprob, PositionLogprobs
from foredraft.verifier import token_logprobs


def position_logprobs(logits: Tensor, token_ids: Sequence[int], num_top: int) -> list[PositionLogprobs]:
    """One entry per position: the token there and the ``num_top`` likeliest ones.

    Args:
        logits: [N, V], raw.
        token_ids: [N].
    """
    tokens = torch.tensor(token_ids, device=logits.device)
    chosen = token_logprobs(logits, tokens, num_top)
    entries: list[PositionLogprobs] = []
    for token, logprob, rank, top_ids, top_logprobs in zip(
        token_ids,
        chosen.logprobs.tolist(),
        chosen.ranks.tolist(),
        chosen.top_ids.tolist(),
        chosen.top_logprobs.tolist(),
        strict=True,
    ):
        entry = {
            top_id: Logprob(top_logprob, place)
            for place, (top_id, top_logprob) in enumerate(zip(top_ids, top_logprobs, strict=True), start=1)
        }
        entry.setdefault(token, Logprob(logprob, rank))
        entries.append(entry)
    return entries
