"""Whatever happened before: a request's next draft is that of a new proposer given the same tokens.

Random histories of requests that join, skip, are accepted in part, end and hand on their rows; outcomes that
are late, doubled or missing; decoders that fail half-way. float32, greedy.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor
from toy_drafts import FakeStates, context_of, draft_decoder, draft_forward, drafted_lists
from toys import TOY_VOCAB, toy_model

from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.embedded.forward import ForwardPass
from foredraft.proposers import Outcome, Tokens
from foredraft.proposers.draft_model import DraftModelProposer

NUM_ROWS, CAPACITY = 4, 112


class FlakyDecoder(SlotDecoder):
    """Fails when told to, after it has written nonsense: what a device that runs out of memory leaves."""

    calls_left = -1

    def forward(
        self,
        tokens: Tokens,
        layers: tuple[int, int] | None = None,
        hidden: Tensor | None = None,
        states: Tensor | None = None,
    ) -> Tensor:
        self.calls_left -= 1
        if self.calls_left == 0:
            tokens = Tokens(
                (tokens.token_ids + 1) % TOY_VOCAB, tokens.row_ids, tokens.starts, tokens.query_lens
            )
            super().forward(tokens, layers, hidden, states)
            raise RuntimeError("out of memory")
        return super().forward(tokens, layers, hidden, states)


@dataclass
class History:
    """A simulated engine with a proposer under test."""

    prepared: ForwardPass
    reads_states: bool
    seed: int
    tokens: dict[str, list[int]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    parked: dict[str, list[int]] = field(default_factory=dict)
    old_outcomes: list[Outcome] = field(default_factory=list)
    num_compared: int = 0
    num_failed: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.decoder = FlakyDecoder(self.prepared, NUM_ROWS, CAPACITY, CAPACITY, TOY_VOCAB)
        self.proposer = DraftModelProposer(self.decoder, reads_states=self.reads_states)
        self.states = FakeStates({})

    def step(self) -> None:
        self._come_and_go()
        names = [name for name in self.tokens if self.random.random() < 0.8]
        self.random.shuffle(names)
        limits = [self.random.choice([0, 1, 2, 4]) for _ in names]
        drafts = self._propose(names, limits)
        self._commit(names, drafts)

    def _come_and_go(self) -> None:
        for name in list(self.tokens):
            if self.random.random() < 0.08:
                self._leave(name)
        free = sorted(set(range(NUM_ROWS)) - set(self.rows.values()))
        while free and self.random.random() < 0.5:
            name = f"r{self.random.randrange(6)}"  # ids come back
            if name not in self.tokens:
                length = self.random.choice([1, 2, 9, 30, 80])
                prompt = [self.random.randrange(TOY_VOCAB) for _ in range(length)]
                self.tokens[name] = self.parked.pop(name, prompt)
                self.rows[name] = free.pop(self.random.randrange(len(free)))

    def _leave(self, name: str) -> None:
        """Released once, or twice, or (it will be back, on any row) not at all."""
        tokens = self.tokens.pop(name)
        del self.rows[name]
        num_releases = self.random.choice([0, 1, 1, 2]) if len(tokens) < CAPACITY else 1
        if num_releases == 0:
            self.parked[name] = tokens
        for _ in range(num_releases):
            self.proposer.release(name, self.random.choice(["finished", "aborted", "preempted"]))
        if self.random.random() < 0.5:
            self._late()

    def _propose(self, names: list[str], limits: list[int]) -> list[list[int]]:
        if self.random.random() < 0.1:
            self.decoder.calls_left = self.random.choice([1, 2, 3])
        try:
            drafts = self._drafts(self.proposer, names, limits)
        except RuntimeError:
            self.num_failed += 1
            return [[] for _ in names]
        finally:
            self.decoder.calls_left = -1
        decoder = draft_decoder(self.prepared, NUM_ROWS, CAPACITY)
        new = DraftModelProposer(decoder, reads_states=self.reads_states)
        assert drafts == self._drafts(new, names, limits)
        rooms = [CAPACITY - len(self.tokens[name]) + 1 for name in names]
        assert [len(one) for one in drafts] == [max(0, min(pair)) for pair in zip(limits, rooms, strict=True)]
        self.num_compared += sum(len(one) > 0 for one in drafts)
        return drafts

    def _drafts(self, proposer: DraftModelProposer, names: list[str], limits: list[int]) -> list[list[int]]:
        self.states.rows = {self.rows[name]: self.tokens[name] for name in names}
        tokens = {name: self.tokens[name] for name in names}
        states = self.states if self.reads_states else None
        rows = [self.rows[name] for name in names]
        return drafted_lists(proposer, context_of(tokens, rows, limits, hidden_states=states))

    def _commit(self, names: list[str], drafts: list[list[int]]) -> None:
        outcomes = []
        for name, draft in zip(names, drafts, strict=True):
            accepted = self.random.choice([0, len(draft), self.random.randint(0, len(draft))])
            kept = [*draft[:accepted], self.random.randrange(TOY_VOCAB)]
            kept = kept[: self.random.choice([len(kept), len(kept), max(1, len(kept) - 1)])]  # cut by a stop
            block_start = len(self.tokens[name])
            accepted = min(accepted, len(kept))
            outcomes.append(Outcome(name, block_start, len(draft), len(draft), accepted, tuple(kept)))
            self.tokens[name] += kept
        if self.random.random() < 0.1:
            self.old_outcomes += outcomes
        else:
            self.proposer.observe(outcomes)
            self._late()
        for name in names:
            if len(self.tokens[name]) > CAPACITY + 3:
                self._leave(name)

    def _late(self) -> None:
        """Outcomes of earlier steps, of requests that are there or gone."""
        if self.old_outcomes and self.random.random() < 0.3:
            held = [one for one in self.old_outcomes if one.request_id not in self._reborn()]
            self.proposer.observe(held)
            self.old_outcomes = []

    def _reborn(self) -> set[str]:
        """Requests under an id in use before: whose an outcome is, then nobody can tell."""
        return {
            one.request_id
            for one in self.old_outcomes
            if self.tokens.get(one.request_id, [])[one.block_start : one.block_start + len(one.committed_ids)]
            != list(one.committed_ids)
        } & set(self.tokens)


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "reads states"])
def prepared(request: pytest.FixtureRequest) -> ForwardPass:
    return draft_forward(toy_model(1), reads_states=request.param)


@pytest.mark.parametrize(
    ("seed", "num_steps"),
    [(0, 60), (1, 60), *(pytest.param(n, 400, marks=pytest.mark.slow) for n in range(2, 6))],
)
def test_any_history(prepared: ForwardPass, seed: int, num_steps: int) -> None:
    """F83, F93, F97, F101, F103, F107."""
    torch.manual_seed(seed)
    history = History(prepared, hasattr(prepared, "_input_proj"), seed)
    for _ in range(num_steps):
        history.step()
    assert history.num_compared > num_steps
    assert history.num_failed > 0
