"""Proposers that raise or break their contract: served as without a draft, counted, logged once."""

import logging
from collections.abc import Callable, Sequence

import pytest
import torch
from lifecycle import GREEDY, PROMPTS, assert_nothing_left, engine_with
from toys import (
    ScriptedProposer,
    run_tokens,
)

from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers import DraftContext
from foredraft.proposers.base import Outcome
from foredraft.verifier import Draft, DraftProbs


@pytest.fixture(scope="module")
def plain() -> list[list[int]]:
    return run_tokens(engine_with(None, num_rows=1), PROMPTS, GREEDY)


class Failing(ScriptedProposer):
    """Raises in one of its methods, every time."""

    def __init__(self, method: str) -> None:
        super().__init__(lambda tokens: [1, 2, 3])
        self.method = method

    def propose(self, context: DraftContext) -> Draft:
        draft = super().propose(context)
        self._fail("propose")
        return draft

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        self._fail("observe")

    def release(self, request_id: str, reason: str) -> None:
        super().release(request_id, reason)
        self._fail("release")

    def _fail(self, method: str) -> None:
        if method == self.method:
            raise RuntimeError(f"{method} is broken")


@pytest.mark.parametrize("method", ["propose", "observe", "release"])
def test_a_proposer_that_raises(
    plain: list[list[int]], method: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The requests are served, every fault is counted, one is logged."""
    engine = engine_with(Failing(method))
    with caplog.at_level(logging.ERROR):
        assert run_tokens(engine, PROMPTS, GREEDY) == plain
    assert engine.metrics.num_proposer_faults > 1
    assert [record.getMessage().split(";")[0] for record in caplog.records] == [
        f"proposer failed in {method}"
    ]
    assert (engine.metrics.num_drafted_tokens == 0) == (method == "propose")
    assert_nothing_left(engine)


def drawn(support: torch.Tensor | None = None, **changes: object) -> Callable[[int], Draft]:
    """A well-formed drawn draft of one token a row, but for ``changes`` of its distributions."""

    def make(num_rows: int) -> Draft:
        width = 97 if support is None else support.shape[-1]
        values = {
            "rows": torch.arange(num_rows),
            "probs": torch.full((num_rows, 1, width), 1 / width),
            **changes,
        }
        return Draft(
            token_ids=torch.ones(num_rows, 1, dtype=torch.int64),
            lengths=torch.ones(num_rows, dtype=torch.int64),
            probs=DraftProbs(**values, support_ids=support),
        )

    return make


BROKEN: dict[str, Callable[[int], object]] = {
    "nothing": lambda rows: None,
    "a list": lambda rows: [[1]] * rows,
    "too few rows": lambda rows: Draft.from_lists([[1]] * (rows - 1)),
    "too many rows": lambda rows: Draft.from_lists([[1]] * (rows + 1)),
    "too long": lambda rows: Draft.from_lists([[1] * 40] * rows),
    "longer than its columns": lambda rows: Draft(torch.ones(rows, 1).long(), torch.full((rows,), 2)),
    "negative length": lambda rows: Draft(torch.ones(rows, 1).long(), torch.full((rows,), -1)),
    "out of vocabulary": lambda rows: Draft.from_lists([[97]] * rows),
    "padding drafted": lambda rows: Draft.from_lists([[-1]] * rows),
    "not padded": lambda rows: Draft(torch.full((rows, 2), 96), torch.ones(rows).long()),
    "drawn and not padded": lambda rows: Draft(
        torch.tensor([[1, 10**9]] * rows),
        torch.ones(rows).long(),
        DraftProbs(torch.arange(rows), torch.full((rows, 2, 97), 1 / 97)),
    ),
    "int32 tokens": lambda rows: Draft(torch.ones(rows, 1, dtype=torch.int32), torch.ones(rows).long()),
    "float tokens": lambda rows: Draft(torch.ones(rows, 1), torch.ones(rows).long()),
    "int32 lengths": lambda rows: Draft(torch.ones(rows, 1).long(), torch.ones(rows, dtype=torch.int32)),
    "distributions of too many positions": drawn(probs=torch.ones(1, 9, 97), rows=torch.tensor([0])),
    "distributions of another vocabulary": drawn(probs=torch.ones(1, 1, 96), rows=torch.tensor([0])),
    "distributions of rows out of range": drawn(probs=torch.ones(1, 1, 97), rows=torch.tensor([99])),
    "distributions of negative rows": drawn(probs=torch.ones(1, 1, 97), rows=torch.tensor([-1])),
    "distributions of one row twice": drawn(probs=torch.ones(2, 1, 97), rows=torch.tensor([0, 0])),
    "distributions in float64": drawn(probs=torch.ones(1, 1, 97).double(), rows=torch.tensor([0])),
    "support out of vocabulary": drawn(torch.tensor([1, 97])),
    "support of another shape": drawn(torch.ones(1, 3, 2).long(), rows=torch.tensor([0])),
}


class Breaking(ScriptedProposer):
    """Returns a draft that keeps no contract."""

    def __init__(self, kind: str) -> None:
        super().__init__(lambda tokens: [])
        self.kind = kind

    def propose(self, context: DraftContext) -> Draft:
        super().propose(context)
        return BROKEN[self.kind](len(context.request_ids))  # type: ignore[return-value]


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_draft(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """Served as without a draft, counted, logged once; in a batch of greedy and sampled requests."""
    params = [SamplingParams(temperature=float(i % 2), seed=i, max_tokens=16) for i in range(len(PROMPTS))]
    engine = engine_with(Breaking(kind))
    with caplog.at_level(logging.ERROR):
        outputs = run_tokens(engine, PROMPTS, params)
    assert outputs == run_tokens(engine_with(None), PROMPTS, params)
    assert engine.metrics.num_proposer_faults > 1
    assert engine.metrics.num_drafted_tokens == 0
    assert len(caplog.records) == 1
    assert_nothing_left(engine)


def test_the_drafts_that_are_broken_on_purpose_are_broken_in_one_place_only() -> None:
    """What ``drawn`` makes without changes is served."""

    class Sound(Breaking):
        def propose(self, context: DraftContext) -> Draft:
            return drawn()(len(context.request_ids))

    engine = engine_with(Sound(""), num_draft_tokens=1)
    engine.generate(PROMPTS, SamplingParams(max_tokens=3))
    assert engine.metrics.num_proposer_faults == 0
    assert engine.metrics.num_drafted_tokens == len(PROMPTS)
