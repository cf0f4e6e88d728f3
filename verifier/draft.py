"""What a proposer hands to the verifier: tokens, and how each row of them was chosen."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

PADDING = -1


@dataclass(frozen=True)
class DraftProbs:
    """The exact distributions the tokens of some rows were drawn from.

    "Exact" means after temperature, top-k, top-p, min-p, masks and dtype: the law the token was really
    drawn from. Reporting another one makes the output law wrong without any error.

    Attributes:
        rows: [R] int64, the batch rows these distributions belong to, strictly increasing.
        probs: [R, K, S] float32. Row sums are 1 for every position below the row's draft length; what lies
            beyond it is ignored.
        support_ids: which token each of the S entries stands for. ``None``: dense, S = V and entry v is
            token v. [S] int64: the same tokens everywhere (a trimmed head). [R, K, S] int64: its own tokens
            per position (top-k, remote drafts). Ids are distinct within one position, but for entries of
            probability 0; every other token has draft probability 0.
    """

    rows: Tensor
    probs: Tensor
    support_ids: Tensor | None = None


@dataclass(frozen=True)
class Draft:
    """Drafted tokens of B requests, ragged.

    A row named in ``probs.rows`` was *drawn* from the distribution given there. Any other row is a *point
    mass*: its tokens were chosen without drawing (n-gram, argmax).

    Attributes:
        token_ids: [B, K] int64, padded with ``PADDING`` from ``lengths`` on. K may be 0.
        lengths: [B] int64, how many tokens each row drafts; 0 is an empty draft.
        probs: distributions of the drawn rows; ``None`` when every row is a point mass.
    """

    token_ids: Tensor
    lengths: Tensor
    probs: DraftProbs | None = None

    @staticmethod
    def none(batch_size: int, device: torch.device | str = "cpu") -> Draft:
        """Nobody drafts."""
        lengths = torch.zeros(batch_size, dtype=torch.int64, device=device)
        return Draft(lengths.new_empty(batch_size, 0), lengths)

    @staticmethod
    def from_lists(token_ids: list[list[int]], device: torch.device | str = "cpu") -> Draft:
        """A point-mass draft from one list of tokens per request."""
        lengths = [len(row) for row in token_ids]
        width = max(lengths, default=0)
        padded = [row + [PADDING] * (width - len(row)) for row in token_ids]
        return Draft(
            token_ids=torch.tensor(padded, dtype=torch.int64, device=device).view(len(token_ids), width),
            lengths=torch.tensor(lengths, dtype=torch.int64, device=device),
        )
