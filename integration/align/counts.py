"""Acceptance, counted from what became of real drafts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from foredraft.integration.engine import SpeculationStats
from foredraft.proposers import Outcome

Z_95 = 1.959964


@dataclass
class AcceptanceCounts(SpeculationStats):
    """Counts of some prompts. Rates are ``None`` while there is nothing to divide by.

    Attributes:
        num_steps: target passes of a request, those that ended its prompt included.
        judged_per_position: how often the drafted token of each place was judged: all before it were
            accepted, and the request had not ended by then.
        accepted_per_position: how often it was then accepted.
    """

    num_prompts: int = 0
    judged_per_position: list[int] = field(default_factory=list)
    accepted_per_position: list[int] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count one draft, or one step without."""
        super().add(outcome)
        # Where the request ended inside the draft, nothing is known about the token after the accepted ones.
        rejected_one = len(outcome.committed_ids) > outcome.num_accepted < outcome.num_verified
        self._count(outcome.num_accepted + rejected_one, outcome.num_accepted)

    def merged(self, other: AcceptanceCounts) -> AcceptanceCounts:
        """Both together."""
        both = AcceptanceCounts(
            num_steps=self.num_steps + other.num_steps,
            num_drafts=self.num_drafts + other.num_drafts,
            num_drafted_tokens=self.num_drafted_tokens + other.num_drafted_tokens,
            num_accepted_tokens=self.num_accepted_tokens + other.num_accepted_tokens,
            num_emitted_tokens=self.num_emitted_tokens + other.num_emitted_tokens,
            num_prompts=self.num_prompts + other.num_prompts,
        )
        for counts in (self, other):
            pairs = zip(counts.judged_per_position, counts.accepted_per_position, strict=True)
            for position, (judged, accepted) in enumerate(pairs):
                both._grow(position + 1)
                both.judged_per_position[position] += judged
                both.accepted_per_position[position] += accepted
        return both

    @property
    def position_acceptance(self) -> list[float | None]:
        """Of each place of the draft: accepted / judged."""
        pairs = zip(self.judged_per_position, self.accepted_per_position, strict=True)
        return [accepted / judged if judged else None for judged, accepted in pairs]

    @property
    def first_interval(self) -> tuple[float, float] | None:
        """95 % interval of the first place's acceptance."""
        if not self.judged_per_position or not self.judged_per_position[0]:
            return None
        return wilson_interval(self.accepted_per_position[0], self.judged_per_position[0])

    def _count(self, judged: int, accepted: int) -> None:
        self._grow(judged)
        for position in range(judged):
            self.judged_per_position[position] += 1
            self.accepted_per_position[position] += position < accepted

    def _grow(self, num_positions: int) -> None:
        missing = max(0, num_positions - len(self.judged_per_position))
        self.judged_per_position += [0] * missing
        self.accepted_per_position += [0] * missing


def total(counts: Iterable[AcceptanceCounts]) -> AcceptanceCounts:
    """All together."""
    overall = AcceptanceCounts()
    for each in counts:
        overall = overall.merged(each)
    return overall


def wilson_interval(successes: int, trials: int) -> tuple[float, float]:
    """95 % interval of a rate (Wilson, JASA 1927), of independent trials: within one text they are nearly so.

    Raises:
        ValueError: no trials, or more successes than trials.
    """
    if not 0 <= successes <= trials or trials == 0:
        raise ValueError(f"{successes} successes of {trials} trials")
    rate, square = successes / trials, Z_95**2
    centre = (rate + square / (2 * trials)) / (1 + square / trials)
    half_width = (
        Z_95 * math.sqrt(rate * (1 - rate) / trials + square / (4 * trials**2)) / (1 + square / trials)
    )
    return max(0.0, centre - half_width), min(1.0, centre + half_width)
