"""The contract of a proposer: what it is told, what it returns, what it learns afterwards."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from foredraft.proposers.decoder import HiddenStates
from foredraft.verifier import Draft, SamplingBatch

ReleaseReason = Literal["finished", "aborted", "preempted"]


@dataclass(frozen=True)
class DraftContext:
    """What a proposer sees of B requests. Rejected tokens never appear here.

    Attributes:
        request_ids: [B].
        token_ids: committed tokens of each request, prompt and output, the newest included. The engine's own
            lists: read, never write, and keep no reference past the call.
        max_draft_tokens: how many tokens each request may draft now; 0 = none.
        sampling: the state the draft should sample with.
        cache_rows: [B], the target's cache row of each request; no two running requests share one.
        hidden_states: for a proposer that sets ``needs_hidden_states``, else ``None``.
        members: [B], which of its members drafts for each request, for a proposer that has several; empty =
            the first.
    """

    request_ids: Sequence[str]
    token_ids: Sequence[Sequence[int]]
    max_draft_tokens: Sequence[int]
    sampling: SamplingBatch
    cache_rows: Sequence[int] = ()
    hidden_states: HiddenStates | None = None
    members: Sequence[int] = ()


@dataclass(frozen=True)
class Outcome:
    """What became of one request's draft, after stop handling.

    Attributes:
        block_start: tokens committed when the draft was asked for; an outcome whose value is not the one the
            proposer remembers is stale and must be ignored.
        num_drafted: tokens the proposer returned.
        num_verified: tokens the target checked; an engine may verify fewer than were drafted.
        num_accepted: verified tokens that were kept.
        committed_ids: tokens appended to the request: accepted ones plus the recovered or bonus token, cut
            where the request ended.
    """

    request_id: str
    block_start: int
    num_drafted: int
    num_verified: int
    num_accepted: int
    committed_ids: tuple[int, ...]


class Proposer(ABC):
    """Guesses the next tokens of running requests.

    ``propose`` may return fewer tokens than allowed, or none. If it raises, the engine serves the step
    without a draft, counts the fault and logs it once. State is kept per request id, from the first
    ``propose`` that names the request until ``release``.
    """

    needs_hidden_states: bool = False
    """Whether the engine is to keep the target's hidden states for ``DraftContext.hidden_states``."""

    num_prospects: int = 1
    """How many kinds of drafts ``prospects`` tells apart, 1 or more."""

    most_unread: int | None = None
    """Tokens that it may have to read first, at most, when it drafts for a request after a while; ``None`` =
    all that were committed meanwhile."""

    @property
    def members(self) -> Sequence[Proposer]:
        """What it is made of: itself, for most."""
        return (self,)

    def prospects(self, request_ids: Sequence[str], token_ids: Sequence[Sequence[int]]) -> Sequence[int]:
        """What kind of draft each request would get, 1 to ``num_prospects``; 0 = none.

        Acceptance is learned for each kind apart, and how far to draft hangs on it. Cheap, and worked out
        from committed tokens alone, as the arguments are in ``DraftContext``; whatever hangs on it then
        leaves the output law alone. ``propose`` may or may not follow.
        """
        return [1] * len(request_ids)

    @abstractmethod
    def propose(self, context: DraftContext) -> Draft:
        """Draft for every request of ``context``, row by row in its order.

        A row is a point mass, or comes with the exact distribution each token was drawn from
        (``DraftProbs``). Whether to stop early may depend on the tokens before it and on the shape of the
        distribution, never on the drawn token's own probability: dropping a drawn token is lossy.
        """

    def observe(self, outcomes: Sequence[Outcome]) -> None:  # noqa: B027 - learning is optional
        """Learn what became of the drafts. Called once after every verified step."""

    @abstractmethod
    def release(self, request_id: str, reason: ReleaseReason) -> None:
        """Forget a request. May be called twice, and for a request never seen."""
