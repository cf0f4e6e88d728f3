"""What a controller has learned, and what it makes of it: the offers and costs of the next step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from foredraft.scheduler.speculation.acceptance import AcceptanceEstimator
from foredraft.scheduler.speculation.drafting_cost import FIXED, PER_ASKED, PER_STEP, PER_UNREAD, DraftingCost
from foredraft.scheduler.speculation.length_search import Costs, Offers, offers
from foredraft.scheduler.speculation.members import Arms, Member
from foredraft.scheduler.speculation.request_rows import Floats
from foredraft.scheduler.speculation.running import Running
from foredraft.scheduler.speculation.step_cost import StepCost

ENTRY_STEPS = 32
"""Steps that taking up drafting is paid off over, at most those that a request has left."""

DRAFTED_STEP = 4
"""Tokens by which a step that drafts may bring a request forward."""


class Learned:
    """Acceptance by request and arm, seconds of passes, seconds of drafting by member.

    Args:
        pass_seconds: seconds by tokens in a target pass, from a calibration.
    """

    def __init__(self, members: Sequence[Member], pass_seconds: Mapping[int, float] | None) -> None:
        self.arms = Arms(members)
        self.acceptance = AcceptanceEstimator(len(self.arms), int(self.arms.most.max()))
        self.step_cost = StepCost(pass_seconds)
        self.drafting = [DraftingCost(member.step_s) for member in members]

    def plain_s(self, num_requests: int) -> float:
        """Seconds of a step without drafts."""
        return self.step_cost.pass_s(num_requests, num_requests)

    def costs(self, num_requests: int) -> Costs:
        """Of a step of so many requests."""
        return Costs(
            lambda num_drafted: self.step_cost.seconds(num_requests, num_requests + num_drafted),
            np.array([one.costs for one in self.drafting]),
        )

    def added_s(self, costs: Costs) -> Floats:
        """[M, K], seconds that one request's draft of 1 to K tokens adds to a step without drafts."""
        lengths = np.arange(int(self.arms.most.max()) + 1, dtype=np.float64)
        pass_s = costs.pass_s(lengths)
        per_token = costs.drafting[:, PER_STEP] + costs.drafting[:, PER_ASKED]
        drafting_s = costs.drafting[:, FIXED, None] + per_token[:, None] * lengths[1:]
        return np.asarray(pass_s[1:] - pass_s[0] + drafting_s)

    def offers(self, now: Running) -> Offers:
        """Of every arm, for each request."""
        accepted, drafted = self.acceptance.yields(now.rows)
        caps = np.minimum(now.caps[:, None], self.arms.most)
        return offers(accepted, drafted, caps, self._entry_tokens(now)[:, self.arms.member])

    def _entry_tokens(self, now: Running) -> Floats:
        """[B, M], what it costs to take up drafting, in emitted tokens."""
        per_unread = np.array([one.costs[PER_UNREAD] for one in self.drafting])
        if not per_unread.any():
            return np.zeros(now.unread.shape)
        entry_s = per_unread * now.unread / np.clip(now.rooms / DRAFTED_STEP, 1, ENTRY_STEPS)[:, None]
        return np.asarray(entry_s * (len(now) / self.plain_s(len(now))))
