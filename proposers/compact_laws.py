"""The laws of drafted tokens on their way from one process to another: the kept tokens, nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foredraft.verifier import DraftProbs


@dataclass(frozen=True)
class CompactLaws:
    """Of R rows and K places the C likeliest tokens, where C is the most that any of the laws keeps.

    Attributes:
        token_ids: [R, K, C] int32, distinct at each place.
        probs: [R, K, C] float32, as drawn from: what is left out has probability 0.
    """

    token_ids: NDArray[Any]
    probs: NDArray[Any]


@dataclass(frozen=True)
class DraftedRow:
    """What one request drafted.

    Attributes:
        token_ids: its tokens.
        probs, support_ids: [K, S], the law of each token where it was drawn; see ``DraftProbs``.
    """

    token_ids: list[int]
    probs: Tensor | None = None
    support_ids: Tensor | None = None

    def cut(self, length: int) -> DraftedRow:
        """Its first ``length`` tokens."""
        if length >= len(self.token_ids) or self.probs is None or self.support_ids is None:
            return DraftedRow(self.token_ids[:length], self.probs, self.support_ids)
        return DraftedRow(self.token_ids[:length], self.probs[:length], self.support_ids[:length])


def pack_laws(rows: Sequence[DraftedRow], width: int) -> CompactLaws:
    """The laws of drawn rows of at most ``width`` tokens.

    Raises:
        ValueError: a row has no laws.
    """
    probs, ids = (_padded([getattr(row, name) for row in rows], width) for name in ("probs", "support_ids"))
    inside = torch.arange(width) < torch.tensor([len(row.token_ids) for row in rows])[:, None]
    probs = probs * inside[:, :, None]
    num_kept = int((probs > 0).sum(2).max())
    top = probs.topk(num_kept, dim=2)
    kept_ids = ids.gather(2, top.indices)
    return CompactLaws(kept_ids.to(torch.int32).cpu().numpy(), top.values.cpu().numpy())


def unpack_laws(laws: CompactLaws, rows: Sequence[int], device: torch.device) -> DraftProbs:
    """What ``pack_laws`` packed, for the increasing batch rows ``rows``."""
    return DraftProbs(
        rows=torch.tensor(rows, dtype=torch.int64, device=device),
        probs=torch.tensor(laws.probs, dtype=torch.float32, device=device),
        support_ids=torch.tensor(laws.token_ids.astype(np.int64), device=device),
    )


def law_of_row(probs: DraftProbs, entry: int, length: int) -> tuple[Tensor, Tensor]:
    """Probabilities and tokens of one entry of ``probs``, both [length, S]."""
    row = probs.probs[entry, :length]
    support = probs.support_ids
    if support is None:
        support = torch.arange(row.shape[1], device=row.device)
    return row, support.expand_as(row) if support.dim() == 1 else support[entry, :length]


def _padded(rows: Sequence[Tensor | None], width: int) -> Tensor:
    """[R, width, S] of rows [K, S]; what stands past a row's own K is its last place again."""
    padded = []
    for row in rows:
        if row is None:
            raise ValueError("a row without laws is a point mass, it has nothing to pack")
        padded.append(row if len(row) == width else row[torch.arange(width).clamp(max=len(row) - 1)])
    return torch.stack(padded)
