"""A made-up clock and acceptance for a controller alone: what it chooses, and what that costs.

For the simulator, the tests and the benchmark of the controller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from foredraft.proposers import Outcome
from foredraft.scheduler.speculation.contract import (
    NO_LIMIT,
    Choice,
    DraftBatch,
    DraftLengthController,
    StepReport,
)

PROMPT_LEN = 64
NO_END = 1_000_000


@dataclass(frozen=True)
class ScriptedMember:
    """What drafts.

    Attributes:
        acceptance: (step, request) -> how likely a drafted token is accepted, if all before it were; one
            number for all places, or one for each.
        drafts: (step, request) -> how likely it drafts at all.
        prospects: (step, request) -> what it says before it drafts (``Proposer.prospects``).
        draft_s: seconds per drafting step, and per drafted token.
        unread_s: seconds per token that it catches up on.
    """

    acceptance: Callable[[int, int], float | Sequence[float]]
    drafts: Callable[[int, int], float] = lambda step, request: 1.0
    prospects: Callable[[int, int], int] = lambda step, request: 1
    draft_s: tuple[float, float] = (0.0, 0.0)
    unread_s: float = 0.0
    max_draft_tokens: int = 8

    def rates(self, step: int, request: int) -> Sequence[float]:
        """[K] of the acceptance."""
        rates = self.acceptance(step, request)
        return [rates] * self.max_draft_tokens if isinstance(rates, (int, float)) else rates

    def share(self, step: int, request: int) -> float:
        """How likely it drafts."""
        return self.drafts(step, request) if self.prospects(step, request) else 0.0

    def accepted_tokens(self, step: int, request: int, length: int) -> float:
        """Expected of a draft of ``length``."""
        kept, expected = 1.0, 0.0
        for rate in self.rates(step, request)[:length]:
            kept *= rate
            expected += kept
        return expected

    def drafting_s(self, lengths: Sequence[int], unread: int = 0) -> float:
        """Seconds of drafting, for the requests it drafts for."""
        if not any(lengths):
            return 0.0
        return self.draft_s[0] * max(lengths) + self.draft_s[1] * sum(lengths) + self.unread_s * unread


@dataclass(frozen=True)
class Load:
    """A script. The unit of time is up to it.

    Attributes:
        members: what the proposer is made of.
        batch: (step) -> requests.
        pass_s: tokens -> seconds of the target pass.
        noise: standard deviation of the logarithm of every time.
        lifetime: steps that a request stays; then another has its place, in place i so many steps before
            it is so in place 0. What scripts call request i is the place.
    """

    members: Sequence[ScriptedMember]
    batch: Callable[[int], int] = lambda step: 1
    pass_s: Callable[[float], float] = lambda tokens: 1.0 + 0.02 * (tokens - 1)
    noise: float = 0.03
    lifetime: int = NO_END
    _best_rates: dict[object, float] = field(default_factory=dict)

    def name(self, step: int, request: int) -> str:
        """The id of the request in a place."""
        return f"{request}.{(step + request) // self.lifetime}"

    def best_rate(self, step: int) -> float:
        """Tokens per second of the best choice, the laws being known. Tries all: for small batches."""
        num_requests = self.batch(step)
        laws = tuple(
            tuple((tuple(one.rates(step, request)), one.share(step, request)) for one in self.members)
            for request in range(num_requests)
        )
        if laws not in self._best_rates:
            self._best_rates[laws] = self._search(step, len(set(laws)) > 1)
        return self._best_rates[laws]

    def _search(self, step: int, apart: bool) -> float:
        num_requests = self.batch(step)
        options = [(0, 0)] + [
            (member, length)
            for member, one in enumerate(self.members)
            for length in range(1, one.max_draft_tokens + 1)
        ]
        alike = ([option] * num_requests for option in options)
        choices = product(options, repeat=num_requests) if apart else alike
        expected = (self.expected(step, *zip(*choice, strict=True)) for choice in choices)
        return max(tokens / seconds for tokens, seconds in expected)

    def plain_rate(self, step: int) -> float:
        """Tokens per second without drafts."""
        return self.batch(step) / self.pass_s(self.batch(step))

    def expected(self, step: int, members: Sequence[int], lengths: Sequence[int]) -> tuple[float, float]:
        """Emitted tokens and seconds of a step, without noise."""
        emitted = drafted = 0.0
        for request, (member, length) in enumerate(zip(members, lengths, strict=True)):
            share = self.members[member].share(step, request)
            emitted += 1 + share * self.members[member].accepted_tokens(step, request, length)
            drafted += share * length
        drafting_s = sum(
            one.drafting_s(of_member(members, lengths, place)) for place, one in enumerate(self.members)
        )
        return emitted, self.pass_s(len(lengths) + drafted) + drafting_s


def of_member(members: Sequence[int], values: Sequence[int], member: int) -> list[int]:
    """The values of the requests that a member drafts for."""
    return [value for own, value in zip(members, values, strict=True) if own == member]


@dataclass
class Run:
    """What came of it, step by step: the choices, and what they cost on average, with the seconds that plain
    decoding and the best choice would have taken for the same tokens."""

    choices: list[Choice] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    plain_s: list[float] = field(default_factory=list)
    best_s: list[float] = field(default_factory=list)

    @property
    def lengths(self) -> list[list[int]]:
        """[steps][B]"""
        return [choice.lengths for choice in self.choices]

    def against_plain(self, start: int = 0) -> float:
        """Speed in units of plain decoding's."""
        return sum(self.plain_s[start:]) / sum(self.seconds[start:])

    def against_best(self, start: int = 0) -> float:
        """Speed in units of the offline optimum's."""
        return sum(self.best_s[start:]) / sum(self.seconds[start:])

    def longest(self, step: int) -> int:
        """The longest length of a step."""
        return max(self.lengths[step])


def play(
    load: Load, controller: DraftLengthController, num_steps: int, seed: int = 0, *, best: bool = True
) -> Run:
    """Let a controller choose, and tell it what the script makes of it.

    Args:
        best: whether to work out what the best choice would have taken.
    """
    state = _State(load, np.random.default_rng(seed))
    run = Run()
    for step in range(num_steps):
        batch = state.batch(step, controller)
        nothing = Choice([0] * len(batch.request_ids), [0] * len(batch.request_ids))
        choice = nothing if controller.skips_step() else controller.choose(batch)
        unread = state.unread(choice)
        controller.observe(state.report(step, choice, unread))
        emitted, seconds = load.expected(step, choice.members, choice.lengths)
        run.choices.append(choice)
        run.seconds.append(
            seconds + sum(one.unread_s * tokens for one, tokens in zip(load.members, unread, strict=True))
        )
        run.plain_s.append(emitted / load.plain_rate(step))
        run.best_s.append(emitted / load.best_rate(step) if best else 0.0)
    return run


@dataclass
class _State:
    """The requests of a run: the name and the committed tokens of each, and how many of them each member has
    read."""

    load: Load
    rng: np.random.Generator
    names: dict[int, str] = field(default_factory=dict)
    committed: dict[int, int] = field(default_factory=dict)
    read: dict[tuple[int, int], int] = field(default_factory=dict)

    def batch(self, step: int, controller: DraftLengthController) -> DraftBatch:
        requests = range(self.load.batch(step))
        names = [self.load.name(step, request) for request in requests]
        gone_places = [place for place, name in self.names.items() if names[place : place + 1] != [name]]
        for gone in gone_places:
            controller.release(self.names.pop(gone))
            del self.committed[gone]
            self.read = {key: tokens for key, tokens in self.read.items() if key[0] != gone}
        self.names = dict(enumerate(names))
        for request in requests:
            self.committed.setdefault(request, PROMPT_LEN)
        return DraftBatch(
            names,
            [NO_END] * len(requests),
            [self.committed[request] for request in requests],
            [NO_LIMIT] * len(requests),
            [[one.prospects(step, request) for request in requests] for one in self.load.members],
        )

    def unread(self, choice: Choice) -> list[int]:
        """Tokens that each member reads first."""
        unread = [0] * len(self.load.members)
        for request, (member, length) in enumerate(zip(choice.members, choice.lengths, strict=True)):
            if length:
                unread[member] += self.committed[request] - self.read.get((request, member), 0)
        return unread

    def report(self, step: int, choice: Choice, unread: Sequence[int]) -> StepReport:
        outcomes = [self._outcome(step, request, choice) for request in range(len(choice.lengths))]
        num_tokens = len(outcomes) + sum(outcome.num_drafted for outcome in outcomes)
        propose_s = [
            one.drafting_s(of_member(choice.members, choice.lengths, member), unread[member]) * self._noise()
            for member, one in enumerate(self.load.members)
        ]
        target_s = self.load.pass_s(num_tokens) * self._noise()
        return StepReport(outcomes, choice, propose_s, target_s, target_s + sum(propose_s), num_tokens)

    def _outcome(self, step: int, request: int, choice: Choice) -> Outcome:
        member, length = choice.members[request], choice.lengths[request]
        one, start = self.load.members[member], self.committed[request]
        drafted = length if length and self.rng.random() < one.share(step, request) else 0
        rates = one.rates(step, request)
        accepted = 0
        while accepted < drafted and self.rng.random() < rates[accepted]:
            accepted += 1
        self.committed[request] += accepted + 1
        if length:
            self.read[request, member] = self.committed[request]
        return Outcome(self.names[request], start, drafted, drafted, accepted, (0,) * (accepted + 1))

    def _noise(self) -> float:
        return float(np.exp(self.load.noise * self.rng.standard_normal()))
