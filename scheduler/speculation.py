"""How many tokens each request may draft in the next step: the contract, and the constant answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from foredraft.proposers import Outcome


@dataclass(frozen=True)
class DraftRequest:
    """What a controller may know of a request before a step. Nothing hangs on tokens not yet committed.

    Attributes:
        room: draft tokens it could still use before ``max_tokens`` or the context limit; 0 or less = none.
        context_len: committed tokens, prompt and output.
        max_draft_tokens: its own limit; ``None`` = the controller's, 0 = no speculation.
    """

    request_id: str
    room: int
    context_len: int = 0
    max_draft_tokens: int | None = None

    def cap(self, max_draft_tokens: int) -> int:
        """The largest length it may be given by a controller with that limit."""
        own = max_draft_tokens if self.max_draft_tokens is None else self.max_draft_tokens
        return max(0, min(own, max_draft_tokens, self.room))


@dataclass(frozen=True)
class StepReport:
    """What a step brought and what it cost.

    Attributes:
        outcomes: of the requests that got tokens.
        asked: the length each of them was given, in the same order.
        propose_s, target_s, step_s: seconds of drafting, of the target pass with the verdict, and of the
            whole step.
        num_tokens: tokens in the target pass, drafts and prompts included.
        num_prefill_tokens: of which prompt tokens.
    """

    outcomes: Sequence[Outcome]
    asked: Sequence[int]
    propose_s: float
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
        candidates: the same for each length in question. This and the rest are given when the plan changes.
        acceptance: of the requests together, at each place: how often a token asked for there is accepted.
        costs_s: seconds of a step without drafts, and of the chosen one.
    """

    num_draft_tokens: int
    num_probes: int
    predicted_tokens_per_s: float
    reason: str
    candidates: Mapping[int, float] = field(default_factory=dict)
    acceptance: Sequence[float] = ()
    costs_s: tuple[float, float] = (0.0, 0.0)


class DraftLengthController(ABC):
    """Chooses draft lengths before a step and learns from it afterwards.

    Lossless by its inputs: a choice looks at committed tokens, past outcomes and times, never at a token that
    is drawn in the step it is for.

    Attributes:
        max_draft_tokens: the largest length it chooses.
        decision: the last one; ``None`` where nothing is decided.
        on_change: called with a line of text when the plan changes.
    """

    max_draft_tokens: int
    decision: Decision | None = None
    on_change: Callable[[str], None] | None = None

    @abstractmethod
    def draft_lengths(self, requests: Sequence[DraftRequest], num_prefill_tokens: int = 0) -> list[int]:
        """One length per request, 0 = do not draft.

        ``num_prefill_tokens`` prompt tokens share the pass.
        """

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

    def draft_lengths(self, requests: Sequence[DraftRequest], num_prefill_tokens: int = 0) -> list[int]:
        return [request.cap(self.max_draft_tokens) for request in requests]
