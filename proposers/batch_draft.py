"""Part of a batch drafts: its sampling taken out, its drafts put back in place."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from foredraft.proposers.base import DraftContext
from foredraft.proposers.drafting import DraftedRows, select_sampling
from foredraft.verifier import MIN_TEMPERATURE, PADDING, Draft, DraftProbs, SamplingBatch


def sampling_of(sampling: SamplingBatch, places: Sequence[int], device: torch.device) -> SamplingBatch | None:
    """The sampling of the requests at ``places``, on the draft's device; ``None`` if all are greedy."""
    where = torch.tensor(places, device=sampling.temperature.device)
    if bool((sampling.temperature[where] < MIN_TEMPERATURE).all()):
        return None
    return select_sampling(sampling, where, device)


def batch_draft(context: DraftContext, places: Sequence[int], drafted: DraftedRows) -> Draft:
    """The draft of the whole batch, on its device: rows that drew with their laws, all else point masses.

    Args:
        places: [R], of each drafted row its request in the context.
    """
    temperature = context.sampling.temperature
    device, num_rows = temperature.device, len(context.request_ids)
    where = torch.tensor(places, device=device)
    token_ids = torch.full((num_rows, drafted.token_ids.shape[1]), PADDING, device=device)
    token_ids[where] = drafted.token_ids.to(device)
    lengths = torch.zeros(num_rows, dtype=torch.int64, device=device)
    lengths[where] = drafted.lengths.to(device)
    if drafted.probs is None or drafted.support_ids is None:
        return Draft(token_ids, lengths)
    drew = (temperature[where] >= MIN_TEMPERATURE).nonzero().squeeze(1)
    probs = DraftProbs(where[drew], drafted.probs.to(device)[drew], drafted.support_ids.to(device)[drew])
    return Draft(token_ids, lengths, probs)
