"""The drafts of several proposers for one batch, put together row by row."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from foredraft.verifier import PADDING, Draft, DraftProbs


def merged_draft(drafts: Mapping[int, Draft], owners: Tensor) -> Draft:
    """Each row from the draft of its owner; rows of no draft are empty.

    Args:
        drafts: of B rows each, by owner.
        owners: [B] int64.
    """
    num_rows = len(owners)
    width = max((draft.token_ids.shape[1] for draft in drafts.values()), default=0)
    token_ids = owners.new_full((num_rows, width), PADDING)
    lengths = owners.new_zeros(num_rows)
    for owner, draft in drafts.items():
        own = (owners == owner).nonzero().squeeze(1)
        token_ids[own, : draft.token_ids.shape[1]] = draft.token_ids[own]
        lengths[own] = draft.lengths[own]
    parts = [
        part
        for owner, draft in drafts.items()
        if draft.probs is not None and len((part := _rows_of(draft.probs, owners == owner)).rows)
    ]
    return Draft(token_ids, lengths, _merged_probs(parts, width) if parts else None)


def _rows_of(probs: DraftProbs, wanted: Tensor) -> DraftProbs:
    kept = wanted[probs.rows].nonzero().squeeze(1)
    support = probs.support_ids
    if support is not None and support.dim() == 3:
        support = support[kept]
    return DraftProbs(probs.rows[kept], probs.probs[kept], support)


def _merged_probs(parts: list[DraftProbs], width: int) -> DraftProbs:
    if len(parts) > 1:
        parts = [_with_own_support(part) for part in parts]
    num_entries = max(part.probs.shape[2] for part in parts)
    rows = torch.cat([part.rows for part in parts])
    order = rows.argsort()
    probs = torch.cat([_padded(part.probs, width, num_entries) for part in parts])[order]
    supports = [part.support_ids for part in parts if part.support_ids is not None]
    if not supports or supports[0].dim() == 1:
        return DraftProbs(rows[order], probs, supports[0] if supports else None)
    return DraftProbs(
        rows[order], probs, torch.cat([_padded(one, width, num_entries) for one in supports])[order]
    )


def _with_own_support(part: DraftProbs) -> DraftProbs:
    """The same with tokens named per position, [R, K, S]."""
    support = part.support_ids
    if support is None:
        support = torch.arange(part.probs.shape[2], device=part.probs.device)
    return DraftProbs(part.rows, part.probs, support.expand_as(part.probs))


def _padded(values: Tensor, width: int, num_entries: int) -> Tensor:
    """[R, width, num_entries], new entries 0: token 0 again, with probability 0."""
    missing = (0, num_entries - values.shape[2], 0, width - values.shape[1])
    return torch.nn.functional.pad(values, missing)
