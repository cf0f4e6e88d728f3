"""What a proposer is told, for tests of proposers alone."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from foredraft.proposers import DraftContext
from foredraft.verifier import SamplingBatch


def make_context(rows: dict[str, Sequence[int]], limits: Sequence[int]) -> DraftContext:
    lengths = [len(tokens) for tokens in rows.values()]
    sampling = SamplingBatch(
        temperature=torch.zeros(len(rows)),
        request_keys=torch.arange(len(rows)),
        block_starts=torch.tensor(lengths),
    )
    return DraftContext(list(rows), list(rows.values()), limits, sampling)
