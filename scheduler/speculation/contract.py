"""How many tokens each request may draft in the next step: the contract, and the constant answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from foredraft.proposers import Outcome

NO_LIMIT = 1_000_000


@dataclass(frozen=True)
class DraftBatch:
    """What a controller may know of B requests before a step. Nothing hangs on tokens not yet committed.

    Attributes:
        request_ids: [B].
        rooms: [B], tokens each could still use before ``max_tokens`` or the context limit; 0 or less = none.
        context_lens: [B], committed tokens, prompt and output.
        limits: [B], each request's own limit; ``NO_LIMIT`` = the controller's, 0 = no speculation.
        prospects: [M][B], what each member of the proposer says of each request (``Proposer.prospects``);
            empty = nothing is said.
        num_prefill_tokens: prompt tokens that share the pass.
    """

    request_ids: Sequence[str]
    rooms: Sequence[int]
    context_lens: Sequence[int]
    limits: Sequence[int]
    prospects: Sequence[Sequence[int]] = ()
    num_prefill_tokens: int = 0

    def caps(self, most: int) -> list[int]:
        """[B], the largest length each may be given by a controller whose limit is ``most``."""
        return [max(0, min(most, *both)) for both in zip(self.rooms, self.limits, strict=True)]


@dataclass(frozen=True)
class Choice:
    """What a step drafts.

    Attributes:
        lengths: [B], tokens each request may draft; 0 = none.
        members: [B], which member of the proposer drafts them; empty = it has only one.
    """

    lengths: list[int]
    members: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class StepReport:
    """What a step brought and what it cost.

    Attributes:
        outcomes: of the requests that got tokens.
        choice: what they were given, in the same order.
        propose_s: seconds of drafting, by member.
        target_s, step_s: seconds of the target pass with the verdict, and of the whole step.
        num_tokens: tokens in the target pass, drafts and prompts included.
        num_prefill_tokens: of which prompt tokens.
    """

    outcomes: Sequence[Outcome]
    choice: Choice
    propose_s: Sequence[float]
    target_s: float
    step_s: float
    num_tokens: int
    num_prefill_tokens: int = 0


@dataclass(frozen=True)
class Decision:
    """Why a step drafts as it does.

    Attributes:
        num_draft_tokens: the longest length given by plan; 0 = nothing is drafted, except by a probe.
        num_probes: requests that draft beyond the plan, to learn.
        predicted_tokens_per_s: emitted tokens over seconds of the step; 0 where it is not predicted.
        reason: in a few words.
        candidates: the same for other choices, by name. This and the rest are given when the plan changes.
        acceptance: by arm (see ``acceptance``), at each place: how often a token asked for there is accepted.
        plain_step_s: seconds of a step without drafts.
    """

    num_draft_tokens: int
    num_probes: int
    predicted_tokens_per_s: float
    reason: str
    candidates: Mapping[str, float] = field(default_factory=dict)
    acceptance: Mapping[str, Sequence[float]] = field(default_factory=dict)
    plain_step_s: float = 0.0


class DraftLengthController(ABC):
    """Chooses draft lengths before a step and learns from it afterwards.

    Lossless by its inputs: a choice looks at committed tokens, past outcomes and times, never at a token that
    is drawn in the step it is for.

    Attributes:
        max_draft_tokens: the largest length it chooses.
        uses_prospects: whether it looks at ``DraftBatch.prospects``.
        decision: the last one; ``None`` where nothing is decided.
        on_change: called with a line of text when the plan changes.
    """

    max_draft_tokens: int
    uses_prospects: bool = False
    decision: Decision | None = None
    on_change: Callable[[str], None] | None = None

    @abstractmethod
    def choose(self, batch: DraftBatch) -> Choice:
        """What each request drafts in the next step."""

    def skips_step(self) -> bool:
        """Whether the next step drafts nothing, whatever batch it has; ``choose`` is then left out."""
        return False

    def observe(self, report: StepReport) -> None:  # noqa: B027 - learning is optional
        """Learn from a step. Called once after each that yielded tokens."""

    def release(self, request_id: str) -> None:  # noqa: B027 - state is optional
        """Forget a request. May be called twice, and for a request never seen."""


class FixedDraftLength(DraftLengthController):
    """The same length always, cut to each request's room and limit.

    Raises:
        ValueError: ``num_draft_tokens`` is not a whole number, 0 or more.
    """

    def __init__(self, num_draft_tokens: int) -> None:
        if type(num_draft_tokens) is not int or num_draft_tokens < 0:
            raise ValueError(f"num_draft_tokens must be a whole number, 0 or more, got {num_draft_tokens!r}")
        self.max_draft_tokens = num_draft_tokens

    def choose(self, batch: DraftBatch) -> Choice:
        return Choice(batch.caps(self.max_draft_tokens))
