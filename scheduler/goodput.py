"""Draft lengths that emit most tokens per second, and never fewer than no speculation for long."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from foredraft.scheduler.acceptance import AcceptanceEstimator, Drafted
from foredraft.scheduler.drafting_cost import DraftingCost
from foredraft.scheduler.explanation import explanation
from foredraft.scheduler.length_search import (
    PLAIN,
    Floats,
    Plan,
    Search,
    Yields,
    depths_up_to,
    lengths_under,
    search_lengths,
    yields_by_length,
)
from foredraft.scheduler.loss_account import LossAccount
from foredraft.scheduler.probes import BatchChecks, RequestProbes
from foredraft.scheduler.request_slots import Ints, RequestSlots, grown
from foredraft.scheduler.speculation import Decision, DraftLengthController, DraftRequest, StepReport
from foredraft.scheduler.step_cost import StepCost

SWITCH_GAIN = 1.02
"""Another plan must promise this much more: a plan near its threshold would be left and taken up again."""

STOP_GAIN = 1.005
"""The same for no drafts at all, where the promise of never being slower is at stake."""

FRESH_GAIN, FRESH_STEPS = 0.06, 20.0
"""What either must promise more just after drafting began or ended, and for how many steps."""

MAX_BOOKED = 5.0
"""Plain steps that one step's drafting is booked with at most: a pause of the machine is not its fault."""

SEARCH_EVERY = 16
"""Requests per step between two searches."""

ENTRY_STEPS = 32
"""Steps that taking up drafting is paid off over, at most half of those that a request has left."""


@dataclass(frozen=True)
class _Batch:
    """The requests of a step: [B] slots, rooms, caps, and tokens a draft model would have to read first."""

    slots: Ints
    rooms: Ints
    caps: Ints
    unread: Floats
    num_prefill_tokens: int


class AdaptiveDraftLength(DraftLengthController):
    """Chooses lengths by expected tokens per second of the whole batch, from measured acceptance and costs.

    See docs/controller.md for the model, the probes and the bound on what it can lose.

    Args:
        max_draft_tokens: K, 1 or more.
        pass_seconds: seconds by tokens in a target pass, from a calibration.
        draft_step_s: seconds of one drafting step, from a calibration; 0 = unknown, or next to nothing.

    Raises:
        ValueError: ``max_draft_tokens`` below 1.
    """

    def __init__(
        self,
        max_draft_tokens: int,
        pass_seconds: Mapping[int, float] | None = None,
        draft_step_s: float = 0.0,
    ) -> None:
        if type(max_draft_tokens) is not int or max_draft_tokens < 1:
            raise ValueError(f"max_draft_tokens must be a whole number, 1 or more, got {max_draft_tokens!r}")
        self.max_draft_tokens = max_draft_tokens
        self._acceptance = AcceptanceEstimator(max_draft_tokens)
        self._step_cost = StepCost(pass_seconds)
        self._drafting_cost = DraftingCost(draft_step_s)
        self._account = LossAccount()
        self._probes = RequestProbes()
        # What a calibration has measured is checked later than what is only guessed.
        self._plain_checks = (
            BatchChecks(first=8, offset=4) if pass_seconds else BatchChecks(first=2, offset=0)
        )
        self._depth_checks = (
            BatchChecks(first=6, offset=6) if pass_seconds else BatchChecks(first=3, offset=3)
        )
        self._deeper = False
        self._depths = depths_up_to(max_draft_tokens)
        self._plan = PLAIN
        self._step = 0
        self._changed = -1_000  # step in which drafting was last begun or ended
        self._slots = RequestSlots()
        self._read = np.zeros(1)  # by slot: committed tokens when the request last drafted
        self._unread_asked = 0.0
        self._next_search = self._num_requests = 0
        self._noted: int | None = None  # length of the plan that was last explained

    # ---- choosing

    def draft_lengths(self, requests: Sequence[DraftRequest], num_prefill_tokens: int = 0) -> list[int]:
        """See ``DraftLengthController.draft_lengths``."""
        self._step += 1
        batch = self._batch(requests, num_prefill_tokens)
        if not batch.caps.any():
            self.decision = None
            return [0] * len(requests)
        if not self._step_cost.known:
            return self._first_step(batch)
        yields = self._yields(batch)
        if num_prefill_tokens:  # what pays in a step that reads prompts says nothing of the next
            self.decision = Decision(int(self._depths[self._plan.depth]), 0, 0.0, "prompts are read")
        elif self._reconsiders(len(requests)):
            self._choose(self._search(batch, yields), batch)
        lengths, num_probes = self._lengths(batch, yields)
        self._unread_asked = float(batch.unread[lengths > 0].sum())
        assert self.decision is not None, "the first step of a batch is always considered"
        self.decision = replace(self.decision, num_probes=num_probes)
        return list(lengths.tolist())

    def _reconsiders(self, num_requests: int) -> bool:
        """Whether to search anew: large batches every few steps, which are long and much like each other."""
        due = self._step >= self._next_search or not self._account.open
        if due or self.decision is None or num_requests != self._num_requests:
            self._next_search = self._step + 1 + num_requests // SEARCH_EVERY
            self._num_requests = num_requests
            return True
        return False

    def _lengths(self, batch: _Batch, yields: Yields) -> tuple[Ints, int]:
        """What each request drafts in this step, and how many of them by probe."""
        num_requests = len(batch.slots)
        plan = self._tried(num_requests) if self._plan.depth else self._plan
        lengths = lengths_under(plan, yields, self._depths)
        if plan != self._plan or not self._account.open:
            return lengths, 0
        return self._with_probes(lengths, batch)

    def _batch(self, requests: Sequence[DraftRequest], num_prefill_tokens: int) -> _Batch:
        slots = self._slots_of([request.request_id for request in requests])
        most = self.max_draft_tokens
        limits = [
            most if request.max_draft_tokens is None else request.max_draft_tokens for request in requests
        ]
        rooms = np.array([request.room for request in requests], dtype=np.int64)
        return _Batch(
            slots,
            rooms,
            np.clip(np.minimum(rooms, limits), 0, most),
            np.array([request.context_len for request in requests]) - self._read[slots],
            num_prefill_tokens,
        )

    def _slots_of(self, request_ids: list[str]) -> Ints:
        slots = self._slots.of(request_ids)
        size = self._slots.size
        if len(self._read) < size:
            self._read = grown(self._read, size)
            self._acceptance.fit(size)
            self._probes.fit(size)
        return slots

    def _first_step(self, batch: _Batch) -> list[int]:
        """Without any cost known: a plain step, to have one."""
        self.decision = Decision(0, 0, 0.0, "first step")
        return [0] * len(batch.slots)

    def _yields(self, batch: _Batch) -> Yields:
        accepted, drafted = self._acceptance.yields(batch.slots)
        entry = np.zeros(len(batch.slots))
        if self._drafting_cost.per_unread_token > 0:
            num_requests = len(batch.slots)
            num_plain = num_requests + batch.num_prefill_tokens
            plain_s = float(self._step_cost.seconds(num_requests, np.array([num_plain]))[0])
            entry_s = self._drafting_cost.per_unread_token * batch.unread
            entry = entry_s / np.clip(batch.rooms / 2, 1, ENTRY_STEPS) * (num_requests / plain_s)
        return yields_by_length(accepted, drafted, batch.caps, entry)

    def _search(self, batch: _Batch, yields: Yields) -> Search:
        num_requests = len(batch.slots)
        num_plain = num_requests + batch.num_prefill_tokens

        def cost(num_drafted: Floats, num_steps: Ints, num_asked: Ints) -> Floats:
            target_s = self._step_cost.seconds(num_requests, num_plain + num_drafted)
            return np.asarray(target_s + self._drafting_cost.seconds(num_steps, num_asked))

        return search_lengths(yields, self._depths, cost)

    def _choose(self, search: Search, batch: _Batch) -> None:
        """Move to another plan where it promises enough."""
        best = search.best()
        rate, plain_rate = search.rate(self._plan), search.rate(PLAIN)
        fresh = FRESH_GAIN * math.exp((self._changed - self._step) / FRESH_STEPS)
        if not self._account.open:
            if self._plan.depth:
                self._acceptance.trust_recent(batch.slots)  # what was believed has lost too much
            self._take(PLAIN)
        elif search.rate(best) > (SWITCH_GAIN + fresh) * rate or plain_rate > (STOP_GAIN + fresh) * rate:
            self._take(best)
        reason = "gain" if self._plan.depth else "no gain" if self._account.open else "nothing left to lose"
        self._note(search, reason, len(batch.slots))

    def _take(self, plan: Plan) -> None:
        if (plan.depth > 0) != (self._plan.depth > 0):
            self._changed = self._step
        self._plan = plan

    def _tried(self, num_requests: int) -> Plan:
        """The plan, or what is to be tried instead in this step: no drafts, or the depth beside."""
        if self._plain_checks.due(num_requests, self._step):
            return PLAIN
        if not self._depth_checks.due(num_requests, self._step):
            return self._plan
        deepest = len(self._depths) - 1
        self._deeper = self._plan.depth < deepest and (self._plan.depth == 1 or not self._deeper)
        # At price 0, so that the requests go all the way.
        return Plan(0, max(1, self._plan.depth + (1 if self._deeper else -1)))

    def _with_probes(self, lengths: Ints, batch: _Batch) -> tuple[Ints, int]:
        """A token for requests that the plan leaves out and whose turn it is, as far as that can be paid."""
        due = self._probes.due(batch.slots, self._step)
        due = due[(lengths[due] == 0) & (batch.caps[due] > 0)]
        for chosen in (due, due[:1]):
            if len(chosen) and self._affords(chosen, lengths, batch):
                lengths = lengths.copy()
                lengths[chosen] = 1
                return lengths, len(chosen)
        return lengths, 0

    def _affords(self, chosen: Ints, lengths: Ints, batch: _Batch) -> bool:
        num_requests = len(batch.slots)
        before = num_requests + batch.num_prefill_tokens + int(lengths.sum())
        plain_s, with_s = self._step_cost.seconds(
            num_requests, np.array([before, before + len(chosen)], float)
        )
        unread = float(batch.unread[chosen].sum())
        drafting = self._drafting_cost.seconds(np.ones(1, np.int64), np.array([len(chosen)]), unread)
        return self._account.affords(float(with_s - plain_s + drafting[0]), float(plain_s))

    def _note(self, search: Search, reason: str, num_requests: int) -> None:
        depth = int(search.depths[self._plan.depth])
        self.decision = Decision(depth, 0, search.rate(self._plan), reason)
        if depth == self._noted:
            return
        self._noted = depth
        rates = zip(search.depths.tolist(), search.tokens_per_s.max(axis=1).tolist(), strict=True)
        self.decision = replace(
            self.decision,
            candidates=dict(rates),
            acceptance=self._acceptance.shared_yields().tolist(),
            costs_s=(float(search.seconds[0, 0]), float(search.seconds[self._plan.depth, self._plan.price])),
        )
        if self.on_change is not None:
            self.on_change(explanation(self.decision, self._step, num_requests))

    # ---- learning

    def observe(self, report: StepReport) -> None:
        """See ``DraftLengthController.observe``."""
        num_requests = len(report.outcomes)
        if not num_requests:
            return
        asked = np.array(report.asked, dtype=np.int64)
        num_drafted = np.array([outcome.num_verified for outcome in report.outcomes])
        num_accepted = np.array([outcome.num_accepted for outcome in report.outcomes])
        if report.num_prefill_tokens == 0:
            self._step_cost.observe(num_requests, report.num_tokens, report.step_s - report.propose_s)
        if asked.any():
            self._drafting_cost.observe(
                int(asked.max()), int(asked.sum()), self._unread_asked, report.propose_s
            )
            self._learn_acceptance(report, asked, num_drafted, num_accepted)
        self._settle(report, int(num_drafted.sum()), int(num_accepted.sum()))

    def _learn_acceptance(
        self, report: StepReport, asked: Ints, num_drafted: Ints, num_accepted: Ints
    ) -> None:
        places = np.flatnonzero(asked)
        outcomes = [report.outcomes[place] for place in places.tolist()]
        slots = self._slots_of([outcome.request_id for outcome in outcomes])
        num_committed = np.array([len(outcome.committed_ids) for outcome in outcomes])
        drafted, accepted = num_drafted[places], num_accepted[places]
        drafts = Drafted(asked[places], drafted, accepted, num_committed <= accepted)
        self._acceptance.observe(slots, drafts)
        self._probes.drafted(slots, drafted, accepted, self._step)
        self._read[slots] = np.array([outcome.block_start for outcome in outcomes]) + num_committed

    def _settle(self, report: StepReport, num_drafted: int, num_accepted: int) -> None:
        """Book what the drafts gained: their tokens at the price of plain ones, less what they cost."""
        num_requests = len(report.outcomes)
        num_plain = report.num_tokens - num_drafted
        plain_s, pass_s = self._step_cost.seconds(
            num_requests, np.array([num_plain, report.num_tokens], float)
        )
        drafting_s = min(report.propose_s, MAX_BOOKED * float(plain_s)) if any(report.asked) else 0.0
        gained_s = num_accepted * float(plain_s) / num_requests
        self._account.settle(gained_s - float(pass_s - plain_s) - drafting_s, float(plain_s))

    def release(self, request_id: str) -> None:
        """See ``DraftLengthController.release``."""
        slot = self._slots.release(request_id)
        if slot is not None and slot < len(self._read):
            self._acceptance.clear(slot)
            self._probes.clear(slot)
            self._read[slot] = 0
