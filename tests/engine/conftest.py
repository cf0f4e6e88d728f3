"""Ways to draft that every promise of the engine is tried with."""

from collections.abc import Callable, Sequence

import pytest
from toys import TOY_VOCAB, ScriptedProposer, oracle_of

from foredraft.proposers import Proposer
from foredraft.proposers.ngram import NgramProposer

MakeProposer = Callable[..., Proposer]
NUM_RIGHT = {"oracle": 1_000, "partial": 2, "wrong": 0}


@pytest.fixture
def make_proposer() -> MakeProposer:
    """A proposer by name, given the runs (prompt + output) of plain decoding that it should know."""

    def make(kind: str, runs: Sequence[Sequence[int]], vocab_size: int = TOY_VOCAB) -> Proposer:
        if kind == "ngram":
            return NgramProposer(1, 3)
        return ScriptedProposer(oracle_of(runs), vocab_size, num_right=NUM_RIGHT[kind])

    return make


@pytest.fixture(params=["oracle", "partial", "wrong", "ngram"])
def draft_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)
