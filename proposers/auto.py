"""Several proposers at once: for each request and step one of them drafts."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from foredraft.proposers.base import DraftContext, Outcome, Proposer, ReleaseReason
from foredraft.proposers.merged_draft import merged_draft
from foredraft.verifier import Draft


class AutoProposer(Proposer):
    """Lets the member that ``DraftContext.members`` names draft for each request.

    Who drafts is settled before anything is drawn, from committed tokens, past outcomes and times. Given
    these, a member's draft is what it would be alone, with the law it reports, so the output law stays the
    target's. Members that are not asked learn nothing new of a request; they see what it has become when they
    are asked again, and catch up then.

    Args:
        members: by name, in the order of ``DraftContext.members``; at least one.

    Attributes:
        names: of the members.
        seconds: [M], what each took in the last ``propose``.

    Raises:
        ValueError: no member.
    """

    def __init__(self, members: Mapping[str, Proposer]) -> None:
        if not members:
            raise ValueError("at least one member is needed")
        self.names = list(members)
        self._members = list(members.values())
        self.needs_hidden_states = any(member.needs_hidden_states for member in self._members)
        self.seconds = [0.0] * len(self._members)

    @property
    def members(self) -> Sequence[Proposer]:
        """See ``Proposer.members``."""
        return self._members

    def propose(self, context: DraftContext) -> Draft:
        """See ``Proposer.propose``."""
        self.seconds = [0.0] * len(self._members)
        owners = list(context.members) or [0] * len(context.request_ids)
        drafts = {}
        for place, member in enumerate(self._members):
            limits = [
                limit if owner == place else 0
                for limit, owner in zip(context.max_draft_tokens, owners, strict=True)
            ]
            if any(limits):
                started = time.perf_counter()
                drafts[place] = member.propose(replace(context, max_draft_tokens=limits, members=()))
                self.seconds[place] = time.perf_counter() - started
        device = context.sampling.temperature.device
        if len(drafts) == 1 and set(owners) == drafts.keys():
            return next(iter(drafts.values()))
        return merged_draft(drafts, torch.tensor(owners, device=device))

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """See ``Proposer.observe``; a member ignores the outcomes of drafts that were not its own."""
        for member in self._members:
            member.observe(outcomes)

    def release(self, request_id: str, reason: ReleaseReason) -> None:
        """See ``Proposer.release``."""
        for member in self._members:
            member.release(request_id, reason)
