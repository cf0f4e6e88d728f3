"""One step's batch: which tokens the target reads, and how each sampled row samples."""

from __future__ import annotations

from collections.abc import Sequence as List
from dataclasses import dataclass

import torch
from torch import Tensor

from foredraft.integration.embedded.sequence import Sequence
from foredraft.proposers.decoder import Tokens
from foredraft.verifier import SamplingBatch

TINY = torch.finfo(torch.float32).tiny


@dataclass(frozen=True)
class ScheduledRow:
    """What one sequence does in this step.

    Attributes:
        row: cache row the sequence owned when the step began.
        start: committed tokens already in the cache.
        num_new: committed tokens to read now (a prefill chunk, or the newest token alone).
        samples: whether the last committed token is among them, so that the step yields new tokens.
    """

    sequence: Sequence
    row: int
    start: int
    num_new: int
    samples: bool

    @property
    def decodes(self) -> bool:
        """Whether only the newest token is unread: the state in which drafting makes sense."""
        return self.samples and self.num_new == 1


def pass_tokens(rows: List[ScheduledRow], drafts: List[List[int]], device: torch.device) -> Tokens:
    """Committed tokens of each row to read, followed by its draft."""
    token_ids: list[int] = []
    for row, draft in zip(rows, drafts, strict=True):
        token_ids += row.sequence.token_ids[row.start : row.start + row.num_new]
        token_ids += draft
    return Tokens(
        token_ids=torch.tensor(token_ids, dtype=torch.int64, device=device),
        row_ids=[row.row for row in rows],
        starts=[row.start for row in rows],
        query_lens=[row.num_new + len(draft) for row, draft in zip(rows, drafts, strict=True)],
    )


def sampled_positions(rows: List[ScheduledRow], drafts: List[List[int]]) -> list[int]:
    """Places in the pass to verify: of each sampling row, the last committed token and its draft."""
    places: list[int] = []
    begin = 0
    for row, draft in zip(rows, drafts, strict=True):
        end = begin + row.num_new + len(draft)
        if row.samples:
            places += range(begin + row.num_new - 1, end)
        begin = end
    return places


def sampling_batch(sequences: List[Sequence], device: torch.device) -> SamplingBatch:
    """The controls of the sampling rows as tensors."""
    params = [sequence.params for sequence in sequences]
    controls = [sequence.controls() for sequence in sequences]

    def column(values: list[float], off: float, dtype: torch.dtype) -> Tensor | None:
        if all(value == off for value in values):
            return None
        return torch.tensor(values, dtype=dtype, device=device)

    return SamplingBatch(
        temperature=torch.tensor([one.temperature for one in params], dtype=torch.float32, device=device),
        request_keys=torch.tensor([sequence.request_key for sequence in sequences], device=device),
        block_starts=torch.tensor([len(sequence.token_ids) for sequence in sequences], device=device),
        top_k=column([max(one.top_k, 0) for one in params], 0, torch.int64),
        # Not rounded to 0, which would keep no token at all.
        top_p=column([max(one.top_p, TINY) for one in params], 1.0, torch.float32),
        min_p=column([one.min_p for one in params], 0.0, torch.float32),
        controls=controls if any(controls) else None,
    )
