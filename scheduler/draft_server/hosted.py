"""What a draft server hosts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from foredraft.proposers import Proposer
from foredraft.proposers.remote_messages import TargetCard
from foredraft.scheduler.draft_server.target_states import TargetStates


@dataclass(frozen=True)
class HostedDraft:
    """A proposer with cache rows of its own, for requests of targets that are elsewhere.

    Attributes:
        num_rows: rows of the proposer; one of them is kept for health checks.
        capacity: the longest request.
        vocab_size: of the targets it drafts for.
        fingerprint: of the weights it was trained for; ``None`` = any target with its tokens.
        states: where the states of the targets lie, for a proposer that reads them.
    """

    proposer: Proposer
    num_rows: int
    capacity: int
    vocab_size: int
    fingerprint: str | None = None
    states: TargetStates | None = None

    def why_not(self, card: TargetCard) -> str | None:
        """Why it cannot draft for a target, in one line, or ``None``."""
        if card.vocab_size != self.vocab_size:
            return f"it drafts for {self.vocab_size} different tokens, this target has {card.vocab_size}"
        if self.fingerprint is not None and card.fingerprint != self.fingerprint:
            made_for, got = self.fingerprint[:8], card.fingerprint[:8]
            return f"it was trained for other weights ({made_for}) than this target's ({got})"
        needed = self.states.size if self.states is not None else 0
        if card.state_size != needed:
            return f"it reads hidden states of size {needed}, this target sends {card.state_size}"
        return None


DraftFactory = Callable[[], HostedDraft]
"""Builds the draft where the server runs; has to survive pickling."""


@runtime_checkable
class Rewinds(Protocol):
    """A proposer that can be told of tokens which were only assumed: such a one can draft ahead."""

    def rewind(self, request_id: str, num_tokens: int) -> None:
        """What was read from ``num_tokens`` on was no committed token."""
        ...
