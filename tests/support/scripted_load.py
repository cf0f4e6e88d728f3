"""A clock and an acceptance that are made up, for a controller alone: what it chooses and what that costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from foredraft.proposers import Outcome
from foredraft.scheduler import DraftLengthController, DraftRequest, StepReport

PROMPT_LEN = 64


@dataclass(frozen=True)
class Load:
    """A script. Seconds are in units of a plain step of one request.

    Attributes:
        acceptance: (step, request) -> how likely a drafted token is accepted, if all before it were.
        batch: (step) -> requests; request i is the same one as long as it stays.
        drafts: (step, request) -> how likely the proposer drafts at all.
        pass_s: tokens -> seconds of the target pass.
        draft_s: seconds per drafting step, and per drafted token.
        unread_s: seconds per token that a draft model catches up on.
        noise: standard deviation of the logarithm of every time.
    """

    acceptance: Callable[[int, int], float]
    batch: Callable[[int], int] = lambda step: 1
    drafts: Callable[[int, int], float] = lambda step, request: 1.0
    pass_s: Callable[[float], float] = lambda tokens: 1.0 + 0.02 * (tokens - 1)
    draft_s: tuple[float, float] = (0.0, 0.0)
    unread_s: float = 0.0
    noise: float = 0.03
    max_draft_tokens: int = 8

    def drafting_s(self, lengths: Sequence[int], unread: int = 0) -> float:
        """Seconds of drafting."""
        if not any(lengths):
            return 0.0
        return self.draft_s[0] * max(lengths) + self.draft_s[1] * sum(lengths) + self.unread_s * unread

    def best_rate(self, step: int) -> float:
        """Tokens per second of the best lengths, the law being known. Tries them all: for small batches."""
        num_requests = self.batch(step)
        laws = {
            (self.acceptance(step, request), self.drafts(step, request)) for request in range(num_requests)
        }
        choices = range(self.max_draft_tokens + 1)
        alike = ([length] * num_requests for length in choices)
        combinations = product(choices, repeat=num_requests) if len(laws) > 1 else alike
        return max(tokens / seconds for tokens, seconds in (self.expected(step, one) for one in combinations))

    def plain_rate(self, step: int) -> float:
        """Tokens per second without drafts."""
        return self.batch(step) / self.pass_s(self.batch(step))

    def expected(self, step: int, lengths: Sequence[int]) -> tuple[float, float]:
        """Emitted tokens and seconds of a step, without noise."""
        emitted = drafted = 0.0
        for request, length in enumerate(lengths):
            share, rate = self.drafts(step, request), self.acceptance(step, request)
            emitted += 1 + share * sum(rate**place for place in range(1, length + 1))
            drafted += share * length
        return emitted, self.pass_s(len(lengths) + drafted) + self.drafting_s(lengths)


@dataclass
class Run:
    """What came of it, step by step: the lengths, and what they cost on average, with the seconds that plain
    decoding and the best lengths would have taken for the same tokens."""

    lengths: list[list[int]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    plain_s: list[float] = field(default_factory=list)
    best_s: list[float] = field(default_factory=list)

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
    load: Load, controller: DraftLengthController, num_steps: int, seed: int = 0, best: bool = True
) -> Run:
    """Let a controller choose, and tell it what the script makes of it."""
    rng = np.random.default_rng(seed)
    run = Run()
    committed: dict[int, int] = {}
    read: dict[int, int] = {}
    for step in range(num_steps):
        num_requests = load.batch(step)
        for gone in [request for request in committed if request >= num_requests]:
            controller.release(str(gone))
            del committed[gone]
            read.pop(gone, None)
        for request in range(num_requests):
            committed.setdefault(request, PROMPT_LEN)
        requests = [DraftRequest(str(one), 1_000_000, committed[one]) for one in range(num_requests)]
        lengths = controller.draft_lengths(requests)
        unread = sum(committed[one] - read.get(one, 0) for one in range(num_requests) if lengths[one])
        outcomes = []
        for one, length in enumerate(lengths):
            drafted = length if rng.random() < load.drafts(step, one) else 0
            accepted = _accepted(rng, load.acceptance(step, one), drafted)
            outcomes.append(
                Outcome(str(one), committed[one], drafted, drafted, accepted, (0,) * (accepted + 1))
            )
            committed[one] += accepted + 1
            if length:
                read[one] = committed[one]
        num_tokens = num_requests + sum(outcome.num_drafted for outcome in outcomes)
        propose_s = load.drafting_s(lengths, unread) * _noise(rng, load)
        target_s = load.pass_s(num_tokens) * _noise(rng, load)
        controller.observe(
            StepReport(outcomes, lengths, propose_s, target_s, propose_s + target_s, num_tokens)
        )
        emitted, seconds = load.expected(step, lengths)
        run.lengths.append(lengths)
        run.seconds.append(seconds + load.unread_s * unread)
        run.plain_s.append(emitted / load.plain_rate(step))
        run.best_s.append(emitted / load.best_rate(step) if best else 0.0)
    return run


def _accepted(rng: np.random.Generator, rate: float, drafted: int) -> int:
    accepted = 0
    while accepted < drafted and rng.random() < rate:
        accepted += 1
    return accepted


def _noise(rng: np.random.Generator, load: Load) -> float:
    return float(np.exp(load.noise * rng.standard_normal()))
