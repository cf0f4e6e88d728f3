from collections.abc import Callable, Sequence

import pytest
from contexts import make_context

from foredraft.proposers import Proposer


@pytest.fixture
def draft_of() -> Callable[..., list[list[int]]]:
    """Propose for a batch and return the rows without their padding."""

    def draft(proposer: Proposer, rows: dict[str, Sequence[int]], limits: Sequence[int]) -> list[list[int]]:
        proposed = proposer.propose(make_context(rows, limits))
        assert proposed.probs is None, "n-gram rows are point masses"
        pairs = zip(proposed.token_ids.tolist(), proposed.lengths.tolist(), strict=True)
        return [tokens[:length] for tokens, length in pairs]

    return draft
