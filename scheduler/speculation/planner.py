"""The plan of a batch: which members draft how far, and what that means for each request and arm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foredraft.scheduler.speculation.contract import DraftBatch
from foredraft.scheduler.speculation.learned import Learned
from foredraft.scheduler.speculation.length_search import (
    Costs,
    Lengths,
    Offers,
    Plan,
    best_plan,
    depths_up_to,
    lengths_under,
    plain_rate,
    rate,
    rates_by_depth,
    solo_lengths,
)
from foredraft.scheduler.speculation.members import Member
from foredraft.scheduler.speculation.request_rows import Floats, Ints, grown
from foredraft.scheduler.speculation.running import Running

SWITCH_GAIN = 1.02
"""Another plan must promise this much more: a plan near its threshold would be left and taken up again."""

STOP_GAIN = 1.005
"""The same for no drafts at all, where the promise of never being slower is at stake."""

FRESH_GAIN, FRESH_STEPS = 0.06, 20.0
"""What either must promise more just after drafting began or ended, and for how many steps."""

KEPT_STEPS = 4
"""Steps that a plan is kept at least, while nothing it rests on has moved; twice as many if nobody drafts."""

REQUESTS_PER_STEP = 12
"""A batch of so many requests is planned and learned from every second step, of twice as many every third:
its steps are long, and tell much each."""

PLAIN_STEPS = 32
"""Steps after which not to draft is considered anew though nothing was drafted since: costs can move."""

PLAN_STEPS = 5
"""Steps that the plan of so many requests is kept at least, of twice as many twice as long."""

FEW_REQUESTS = 4
"""Below, there is a plan for each thing the members may offer; in larger batches the offers even out."""

MOST_PLANS = 1_000


def study_interval(num_requests: int) -> int:
    """Steps of a batch from one that is planned and learned from to the next."""
    return 1 + num_requests // REQUESTS_PER_STEP


@dataclass(frozen=True)
class Planned:
    """A plan, and the tokens per second it promises, with those of no drafts."""

    plan: Plan
    tokens_per_s: float
    plain_tokens_per_s: float


@dataclass
class _Kept:
    """A plan, and the step in which drafting was last begun or ended under it."""

    plan: Plan
    switched: int = -1_000


class Planner:
    """Keeps a plan while it is good enough; see docs/controller.md.

    Attributes:
        planned: the plan in force; ``None`` before the first.
    """

    def __init__(self, learned: Learned, members: Sequence[Member]) -> None:
        self._learned = learned
        self._members = members
        self._depths = depths_up_to(max(member.max_draft_tokens for member in members))
        self._plain = Plan(0, (0,) * len(members))
        self.planned: Planned | None = None
        self._plans: dict[bytes, _Kept] = {}
        self._next_step = self._considered_in = 0
        self._num_changes = 0
        self._saw_drafts = False
        self._rows: Ints = np.zeros(0, dtype=np.int64)
        self._offered_then: Ints = np.zeros(len(learned.arms), dtype=np.int64)
        # By row and arm: what the plan means. A row that was never planned has worth -1.
        self._lengths = np.zeros((1, len(learned.arms)), dtype=np.int64)
        self._worth = np.full((1, len(learned.arms)), -1.0)
        self._request_ids: Sequence[str] = ()
        self._used: list[list[int]] = []  # by member and what it says: how far anybody drafts then

    @property
    def drafts(self) -> bool:
        """Whether the plan in force drafts; true before the first."""
        return self.planned is None or self.planned.plan.drafts

    def fit(self, size: int) -> None:
        """Make room for so many rows (``RequestTable``)."""
        if len(self._worth) < size:
            added = np.full((size - len(self._worth), self._worth.shape[1]), -1.0)
            self._lengths, self._worth = grown(self._lengths, size), np.concatenate([self._worth, added])

    def clear(self, row: int) -> None:
        """Forget a request."""
        self._lengths[row], self._worth[row] = 0, -1.0
        self._request_ids = ()  # its id may be used again

    def outdated(self, now: Running, step: int) -> bool:
        """Whether something the plan rests on has moved, or it is old."""
        if self._is_old(step):
            return True
        joined = now.rows is not self._rows and (self._worth[now.rows, 0] < 0).any()
        return bool(joined)

    def _is_old(self, step: int) -> bool:
        return step >= self._next_step or self._learned.acceptance.num_changes != self._num_changes

    def rests_until(self, request_ids: Sequence[str]) -> int:
        """The step before which none of these drafts, whatever its members offer."""
        rests = request_ids == self._request_ids and not any(map(any, self._used))
        return self._next_step if rests else 0

    def leaves_out(self, batch: DraftBatch, step: int) -> bool:
        """Whether the plan stands and gives none of these requests a draft, for what their members offer.

        What ``outdated`` and ``chosen`` say, without arrays: cold, as after a pass of the model, they cost
        half a per cent of it.
        """
        if self._is_old(step):
            return False
        if batch.request_ids != self._request_ids or not batch.prospects:
            return False
        pairs = zip(self._used, batch.prospects, strict=True)
        return not any(used[said] for used, own in pairs for said in own)

    def hurry(self, step: int) -> None:
        """Look again in the next step, if nobody drafts: something promising was seen."""
        if not self.drafts:
            self._next_step = step + 1

    def renew(self, now: Running, step: int, tokens_per_s: float, *, may_draft: bool) -> None:
        """Consider another plan, and note what the one taken means for each request and arm.

        Prompts that share the pass are left out of account: they will not in the steps to come.

        Args:
            tokens_per_s: what the batch reached lately; 0 = not known.
        """
        if self._stays_plain(now, step):
            self._next_step = step + self._kept_steps(now)
            return
        self._num_changes, self._considered_in = self._learned.acceptance.num_changes, step
        self._rows, self._offered_then, self._saw_drafts = now.rows, self._num_offered(now), False
        by_arm = self._learned.offers(now)
        offered, costs = by_arm.of(now.arms), self._learned.costs(len(now))
        kept = self._kept(now)
        self.planned = self._considered(kept, offered, costs, step, may_draft)
        if self.planned.plan.drafts != kept.plan.drafts:
            kept.switched = step
        kept.plan = self.planned.plan
        self._next_step = step + self._kept_steps(now)
        found = self._found(by_arm, costs, now, tokens_per_s, may_draft)
        self._lengths[now.rows], self._worth[now.rows] = found.lengths, found.worth
        self._request_ids = now.request_ids
        self._used = self._learned.arms.by_member(found.lengths.max(axis=0).tolist())

    def _stays_plain(self, now: Running, step: int) -> bool:
        """Whether nobody drafts, and nothing was learned that could change it."""
        if self.drafts or self._saw_drafts or now.rows is not self._rows:
            return False
        is_recent = step - self._considered_in < PLAIN_STEPS
        return is_recent and bool((self._num_offered(now)[1:] <= self._offered_then[1:]).all())

    def _num_offered(self, now: Running) -> Ints:
        """[A], how often each arm is on offer."""
        return np.bincount(now.arms.ravel(), minlength=len(self._learned.arms))

    def _kept_steps(self, now: Running) -> int:
        kept_steps = KEPT_STEPS if self.drafts else 2 * KEPT_STEPS
        return max(kept_steps, PLAN_STEPS * len(now) // REQUESTS_PER_STEP)

    def note_drafts(self) -> None:
        """Something was drafted: more is known than when the plan was made."""
        self._saw_drafts = True

    def _kept(self, now: Running) -> _Kept:
        """The plan in force for such a batch."""
        if len(self._plans) > MOST_PLANS:
            self._plans.clear()
        key = np.sort(now.arms, axis=0).tobytes() if len(now) < FEW_REQUESTS else b""
        return self._plans.setdefault(key, _Kept(self._plain))

    def _considered(self, kept: _Kept, offered: Offers, costs: Costs, step: int, may_draft: bool) -> Planned:
        plain = plain_rate(offered, costs)
        if not may_draft:
            return Planned(self._plain, plain, plain)
        best, best_rate = best_plan(offered, costs, self._depths)
        own = rate(kept.plan, offered, costs) if kept.plan.drafts else plain
        fresh = FRESH_GAIN * math.exp((kept.switched - step) / FRESH_STEPS)
        if best_rate > (SWITCH_GAIN + fresh) * own or plain > (STOP_GAIN + fresh) * own:
            return Planned(best, best_rate, plain)
        return Planned(kept.plan, own, plain)

    def _found(
        self, by_arm: Offers, costs: Costs, now: Running, tokens_per_s: float, may_draft: bool
    ) -> Lengths:
        """[B, A]: what the plan means for the arms it uses. For others, should they come up: what is worth
        more, by itself, than the tokens of its time at the speed that the batch had lately."""
        assert self.planned is not None, "it was just made"
        arms = self._learned.arms
        depths = np.array(self.planned.plan.depths)[arms.member]
        found = lengths_under(by_arm, self.planned.plan.price, depths)
        is_absent = depths == 0
        is_absent[1:] |= self._offered_then[1:] == 0
        is_absent[0] = False
        absent = np.flatnonzero(is_absent)
        if may_draft and len(absent):
            added_s = self._learned.added_s(costs)[arms.member[absent]]
            others = Offers(by_arm.emitted[:, absent], by_arm.drafted[:, absent])
            solo = solo_lengths(others, added_s, tokens_per_s or self.planned.tokens_per_s)
            found.lengths[:, absent], found.worth[:, absent] = solo.lengths, solo.worth
        return found

    def chosen(self, now: Running) -> tuple[Ints, Ints, Floats]:
        """[B] lengths and members under the plan, and what they are worth in tokens."""
        cells = now.rows[:, None] * self._worth.shape[1] + now.arms
        worth = self._worth.ravel()[cells]
        members = worth.argmax(axis=1)
        own = cells.ravel()[np.arange(len(now)) * cells.shape[1] + members]
        return np.minimum(self._lengths.ravel()[own], now.caps), members, worth.max(axis=1)

    def alternatives(self, now: Running) -> dict[str, float]:
        """Tokens per second where one member alone drafts so far, by its name and depth."""
        offered, costs = self._learned.offers(now).of(now.arms), self._learned.costs(len(now))
        rates = rates_by_depth(offered, costs, self._depths)
        return {
            f"{member.name} {depth}": rates[place, column]
            for place, member in enumerate(self._members)
            for column, depth in enumerate(self._depths.tolist())
            if depth <= member.max_draft_tokens
        }
