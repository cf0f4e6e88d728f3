"""What the engine counts: tokens, faults, and where a step's time goes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foredraft.proposers.base import Outcome
    from foredraft.scheduler.speculation.contract import Choice, Decision, DraftBatch

PHASES = ("propose", "forward", "sample", "total")


@dataclass
class EngineMetrics:
    """Counters since the engine was built.

    Attributes:
        num_emitted_tokens: tokens delivered, accepted drafts included.
        accepted_per_position: how often the draft token at each place of a block was accepted.
        verified_per_position: how often there was one.
        length_counts: how often a request that could draft was given each length, where that was considered.
        member_names: what drafts; empty = not known.
        member_counts: how often each member of a proposer that has several drafted for a request.
        num_probes: drafts beyond the plan, to learn.
        predicted_tokens_per_s: of the last decision; ``None`` before one.
            ``num_emitted_tokens / seconds["total"]`` is what came of them.
        seconds: per phase: ``propose`` (drafting), ``forward`` (the target pass), ``sample`` (logits to
            tokens), ``total`` (the whole step); what is left of the total is bookkeeping. A phase that an
            engine cannot tell is not among them.
    """

    num_steps: int = 0
    num_drafted_tokens: int = 0
    num_accepted_tokens: int = 0
    num_emitted_tokens: int = 0
    num_proposer_faults: int = 0
    accepted_per_position: list[int] = field(default_factory=list)
    verified_per_position: list[int] = field(default_factory=list)
    length_counts: Counter[int] = field(default_factory=Counter)
    member_names: Sequence[str] = ()
    member_counts: Counter[int] = field(default_factory=Counter)
    num_probes: int = 0
    predicted_tokens_per_s: float | None = None
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))

    def count_choice(self, batch: DraftBatch, choice: Choice, decision: Decision | None) -> None:
        """Add what a controller chose."""
        self.length_counts.update(
            length for room, length in zip(batch.rooms, choice.lengths, strict=True) if room > 0
        )
        self.member_counts.update(
            member for length, member in zip(choice.lengths, choice.members, strict=False) if length
        )
        if decision is not None:
            self.num_probes += decision.num_probes
            self.predicted_tokens_per_s = decision.predicted_tokens_per_s or self.predicted_tokens_per_s

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add the time spent inside to a phase."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] += time.perf_counter() - started

    def count(self, outcomes: Sequence[Outcome]) -> None:
        """Add one step's outcomes."""
        self.num_steps += 1
        for outcome in outcomes:
            self.num_emitted_tokens += len(outcome.committed_ids)
            self.count_draft(outcome.num_drafted, outcome.num_verified, outcome.num_accepted)

    def count_draft(self, num_drafted: int, num_verified: int, num_accepted: int) -> None:
        """Add what became of one draft."""
        self.num_drafted_tokens += num_drafted
        self.num_accepted_tokens += num_accepted
        missing = num_verified - len(self.verified_per_position)
        self.verified_per_position += [0] * missing
        self.accepted_per_position += [0] * missing
        for position in range(num_verified):
            self.verified_per_position[position] += 1
            self.accepted_per_position[position] += position < num_accepted
