from collections.abc import Callable, Sequence

import pytest
import torch

from foredraft.proposers import DraftContext, Proposer
from foredraft.verifier import SamplingBatch


def make_context(rows: dict[str, Sequence[int]], limits: Sequence[int]) -> DraftContext:
    lengths = [len(tokens) for tokens in rows.values()]
    sampling = SamplingBatch(
        temperature=torch.zeros(len(rows)),
        request_keys=torch.arange(len(rows)),
        block_starts=torch.tensor(lengths),
    )
    return DraftContext(list(rows), list(rows.values()), limits, sampling)


@pytest.fixture
def draft_of() -> Callable[..., list[list[int]]]:
    """Propose for a batch and return the rows without their padding."""

    def draft(proposer: Proposer, rows: dict[str, Sequence[int]], limits: Sequence[int]) -> list[list[int]]:
        proposed = proposer.propose(make_context(rows, limits))
        assert proposed.probs is None, "n-gram rows are point masses"
        pairs = zip(proposed.token_ids.tolist(), proposed.lengths.tolist(), strict=True)
        return [tokens[:length] for tokens, length in pairs]

    return draft
