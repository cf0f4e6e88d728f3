"""An exception while drafting leaves model, rows and output as they were (F177)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from lifecycle import assert_nothing_left
from toy_exits import exit_engine, exit_model, trained_exit, trained_head
from toys import TOY_VOCAB, make_engine, random_prompts, run_tokens

from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.embedded.exit_decoder import ExitDecoder
from foredraft.integration.embedded.exit_head import ExitHead, OwnHead, TrainedHead
from foredraft.integration.embedded.forward import prepare_model
from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers import DraftContext
from foredraft.proposers.early_exit import EarlyExitProposer
from foredraft.verifier import Draft

GREEDY = SamplingParams(temperature=0, max_tokens=16)
PROMPTS = random_prompts(6, seed=3, longest=30)
MODEL = exit_model()
TARGET = prepare_model(copy.deepcopy(MODEL))
HEADS: dict[str, Callable[[], ExitHead]] = {
    "own": lambda: OwnHead(TARGET, 2),
    "trained": lambda: trained_head(trained_exit(MODEL, 1), TARGET),
    "trained, reads states": lambda: trained_head(trained_exit(MODEL, 2, reads_states=True), TARGET),
}


class Failing:
    """Calls through to a function, and fails now and then: before it has done its work, or after."""

    def __init__(self, function: Callable[..., Any], every: int, *, after: bool) -> None:
        self._function, self._every, self._after = function, every, after
        self._calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._calls += 1
        fails = self._calls % self._every == 0
        if fails and not self._after:
            raise RuntimeError("out of memory")
        result = self._function(*args, **kwargs)
        if fails:
            raise RuntimeError("out of memory")
        return result


class Watched(EarlyExitProposer):
    """Notes whether the rows are as long as before whenever drafting ends, and when it failed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.intact: list[bool] = []
        self.failed: list[bool] = []

    def propose(self, context: DraftContext) -> Draft:
        rows = range(self.decoder.num_rows)
        before = [self.decoder.valid_len(row) for row in rows]
        self.failed.append(True)
        try:
            draft = super().propose(context)
            self.failed[-1] = False
            return draft
        finally:
            self.intact.append([self.decoder.valid_len(row) for row in rows] == before)


@pytest.fixture(scope="module")
def plain() -> list[list[int]]:
    return run_tokens(make_engine(SlotDecoder(TARGET, 1, 256, 512, TOY_VOCAB)), PROMPTS, GREEDY)


# With 3 tokens a step, a draft is 3 passes and 3 calls of the head: 4 fails at the first, the second and the
# third one in turn.
@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("after", [False, True], ids=["before it", "after it"])
@pytest.mark.parametrize("where", ["the decoder", "the exit head", "the projection"])
def test_a_fault_costs_its_draft_alone(plain: list[list[int]], name: str, where: str, after: bool) -> None:
    head = HEADS[name]()
    engine = exit_engine(TARGET, head, num_rows=3, proposer=Watched, prefill_chunk=16)
    proposer = engine.proposer
    assert isinstance(proposer, Watched)
    assert isinstance(proposer.decoder, ExitDecoder)
    if where == "the decoder":
        proposer.decoder.forward = Failing(proposer.decoder.forward, 4, after=after)  # type: ignore[method-assign]
    elif where == "the exit head":
        head.forward = Failing(head.forward, 4, after=after)  # type: ignore[method-assign]
    else:
        head.head = Failing(head.head, 4, after=after)  # type: ignore[method-assign]
    num_layers = TARGET.num_layers
    assert run_tokens(engine, PROMPTS, GREEDY) == plain
    assert engine.metrics.num_proposer_faults == sum(proposer.failed) > 3
    assert all(proposer.intact)
    assert not all(proposer.failed[proposer.failed.index(True) :]), "it drafts again"
    assert engine.metrics.num_accepted_tokens > 10
    assert TARGET.num_layers == num_layers
    assert_nothing_left(engine)


@pytest.mark.parametrize("name", HEADS)
def test_drafts_after_a_fault_are_the_usual_ones(name: str) -> None:
    """A step that failed may have written anything behind the committed tokens."""
    head = HEADS[name]()
    flaky, honest = (exit_engine(TARGET, head, num_rows=2, proposer=Watched) for _ in range(2))
    drafts: list[list[list[int]]] = [[], []]
    for engine, seen, fails in ((flaky, drafts[0], True), (honest, drafts[1], False)):
        proposer = engine.proposer
        assert isinstance(proposer, Watched)
        draft_or_fail(proposer, seen, fails=fails)
        assert len(run_tokens(engine, PROMPTS, GREEDY)) == len(PROMPTS)
    assert flaky.metrics.num_proposer_faults > 3
    # The same committed tokens are met with the same draft, in whichever step that is.
    met = [one for one in drafts[0] if one[0] in [other[0] for other in drafts[1]]]
    assert len(met) > 5
    assert all(one in drafts[1] for one in met)


def draft_or_fail(proposer: Watched, seen: list[list[list[int]]], *, fails: bool) -> None:
    """Every other draft goes wrong in the middle, after writing what nobody drafted."""
    honest, calls = proposer.propose, iter(range(1000))

    def propose(context: DraftContext) -> Draft:
        if fails and next(calls) % 2 == 0:
            poison(proposer.decoder, context)
            raise RuntimeError("out of memory")
        draft = honest(context)
        seen.extend(
            [list(tokens), [token for token in drafted if token >= 0]]
            for tokens, drafted in zip(context.token_ids, draft.token_ids.tolist(), strict=True)
        )
        return draft

    proposer.propose = propose  # type: ignore[method-assign]


def poison(decoder: Any, context: DraftContext) -> None:
    cache = decoder._target.cache
    for row, tokens in zip(context.cache_rows, context.token_ids, strict=True):
        cache.keys[:, row, :, len(tokens) - 1 :] = 1e6
        cache.values[:, row, :, len(tokens) - 1 :] = 1e6


def test_a_head_that_does_not_know_its_states_is_a_fault_not_a_crash(plain: list[list[int]]) -> None:
    """An engine that keeps no states for a head that reads them."""
    head = HEADS["trained, reads states"]()
    assert isinstance(head, TrainedHead)
    target = SlotDecoder(TARGET, 2, 256, 512, TOY_VOCAB)
    engine = make_engine(target, Watched(ExitDecoder(target, head), reads_states=True), 3)
    assert run_tokens(engine, PROMPTS, GREEDY) == plain
    assert engine.metrics.num_proposer_faults > 3
    assert torch.is_inference_mode_enabled() is False
