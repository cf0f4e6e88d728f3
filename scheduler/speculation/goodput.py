"""Draft lengths that emit most tokens per second, and never fewer than no speculation for long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from foredraft.scheduler.speculation.contract import (
    Choice,
    Decision,
    DraftBatch,
    DraftLengthController,
    StepReport,
)
from foredraft.scheduler.speculation.explanation import arm_names, explanation
from foredraft.scheduler.speculation.learned import Learned
from foredraft.scheduler.speculation.length_search import Plan
from foredraft.scheduler.speculation.lessons import Lesson, Lessons
from foredraft.scheduler.speculation.loss_account import LossAccount
from foredraft.scheduler.speculation.members import Member
from foredraft.scheduler.speculation.planner import Planned, Planner, study_interval
from foredraft.scheduler.speculation.probes import PlainChecks, RequestProbes
from foredraft.scheduler.speculation.probing import PROBE_STEPS, Probing
from foredraft.scheduler.speculation.request_rows import Ints
from foredraft.scheduler.speculation.running import Asked, RequestTable, Running
from foredraft.scheduler.speculation.speed import Speed

COSTS_EVERY, PLAIN_COSTS_EVERY = 3, 4
OFTEN_AT_FIRST = 30
"""Costs are learned from every third step that drafts, from every fourth that does not, after so many first
ones: they change slowly."""

NO_ROWS: Ints = np.zeros(0, dtype=np.int64)

MAX_BOOKED = 5.0
"""Plain steps that one step's drafting is booked with at most: a pause of the machine is not its fault."""


class AdaptiveDraftLength(DraftLengthController):
    """Chooses members and lengths by expected tokens per second of the whole batch, from what it measures.

    See docs/controller.md for the model, the probes and the bound on what it can lose.

    Args:
        members: what drafts; at least one.
        pass_seconds: seconds by tokens in a target pass, from a calibration.

    Raises:
        ValueError: no member.
    """

    uses_prospects = True

    def __init__(self, members: Sequence[Member], pass_seconds: Mapping[int, float] | None = None) -> None:
        if not members:
            raise ValueError("at least one member is needed")
        self.members = members
        self.max_draft_tokens = max(member.max_draft_tokens for member in members)
        self._learned = Learned(members, pass_seconds)
        self._requests = RequestTable(self._learned.arms, members)
        self._planner = Planner(self._learned, members)
        self._account = LossAccount()
        self._turns = RequestProbes(self._learned.arms.member)
        self._probe_account = LossAccount(PROBE_STEPS, PROBE_STEPS)
        self._lessons = Lessons(
            self._learned.acceptance, self._requests, self._turns, self._planner, self._probe_account
        )
        self._probing = Probing(self._learned, members, self._turns, self._probe_account)
        # What a calibration has measured is checked later than what is only guessed.
        self._plain_checks = PlainChecks(first=8 if pass_seconds else 2)
        self._step = 0
        self._speed = Speed()
        self._was_open = self._studies = True
        self._probed, self._charged = NO_ROWS, False
        self._rests_until = 0
        self._num_studied = self._num_plain = 0
        self._asked = Asked({}, [0.0] * len(members))
        self._explained: dict[bytes, Plan] = {}  # by what is offered, where one request decides

    # ---- choosing

    def skips_step(self) -> bool:
        """See ``DraftLengthController.skips_step``: until the plan is looked at again."""
        if self._step + 1 >= self._rests_until:
            return False
        self._step += 1
        return True

    def choose(self, batch: DraftBatch) -> Choice:
        """See ``DraftLengthController.choose``."""
        self._step += 1
        self._note_probed(NO_ROWS)
        nothing = Choice([0] * len(batch.request_ids), [0] * len(batch.request_ids))
        if not self._closes and self._planner.leaves_out(batch, self._step):
            self._rests_until = self._planner.rests_until(batch.request_ids)
            return nothing
        now = self._requests.running(batch, self.max_draft_tokens)
        if not now.caps.any():
            self.decision = None
            return nothing
        if not self._learned.step_cost.known:  # a plain step, to have a cost
            self.decision = Decision(0, 0, 0.0, "first step")
            return nothing
        renews = self._renew_plan(now)
        lengths, who, worth = self._planner.chosen(now)
        drafts = bool(lengths.any())
        if drafts and self._plain_checks.due(len(now), self._step):
            return nothing
        if renews and self._account.open:
            chosen = lengths, who, worth
            probed, self._charged = self._probing.add(now, chosen, self._account.balance, self._step)
            self._note_probed(probed)
        if not drafts and not len(self._probed):
            self._rests_until = self._planner.rests_until(batch.request_ids)
            return nothing
        self._studies = len(self._probed) > 0 or self._step % study_interval(len(now)) == 0
        self._asked = self._requests.note_asked(now, lengths, who)
        return Choice(lengths.tolist(), who.tolist())

    def _note_probed(self, rows: Ints) -> None:
        self._probed = rows
        if self.decision is not None and self.decision.num_probes != len(rows):
            self.decision = replace(self.decision, num_probes=len(rows))

    def _renew_plan(self, now: Running) -> bool:
        """Make the plan anew if need be; whether it was."""
        self._fit()
        closes = self._closes
        self._was_open = self._account.open
        outdated = closes or self._planner.outdated(now, self._step)
        if outdated:
            self._lessons.learn()
        if closes:
            self._learned.acceptance.trust_recent(now.rows)  # what was believed has lost too much
        if outdated:
            self._planner.renew(now, self._step, self._speed.tokens_per_s, may_draft=self._account.open)
            self._decide(now)
            return True
        return False

    @property
    def _closes(self) -> bool:
        """Whether the account has run dry since a plan was considered."""
        return self._was_open and not self._account.open

    def _fit(self) -> None:
        for table in (self._planner, self._learned.acceptance, self._turns):
            table.fit(self._requests.size)

    def _decide(self, now: Running) -> None:
        planned = self._planner.planned
        assert planned is not None, "it was just made"
        reason = (
            "gain" if planned.plan.drafts else "no gain" if self._account.open else "nothing left to lose"
        )
        plain_step_s = len(now) / planned.plain_tokens_per_s
        self.decision = Decision(
            max(planned.plan.depths), 0, planned.tokens_per_s, reason, plain_step_s=plain_step_s
        )
        if planned.plan != self._explained.get(offer := now.arms.tobytes() if len(now) == 1 else b""):
            self._explained[offer] = planned.plan
            self._explain(self.decision, planned, now)

    def _explain(self, decision: Decision, planned: Planned, now: Running) -> None:
        accepted = self._learned.acceptance.shared_yields()[1:].tolist()
        self.decision = replace(
            decision,
            candidates=self._planner.alternatives(now),
            acceptance=dict(zip(arm_names(self.members), accepted, strict=True)),
        )
        if self.on_change is not None:
            text = explanation(self.decision, planned.plan, self.members)
            self.on_change(f"step {self._step}, batch {len(now)}: {text}")

    # ---- learning

    def observe(self, report: StepReport) -> None:
        """See ``DraftLengthController.observe``."""
        if not report.outcomes:
            return
        if not report.num_prefill_tokens:
            emitted = sum([len(outcome.committed_ids) for outcome in report.outcomes])
            self._speed.note(len(report.outcomes), emitted, report.step_s)
        self._probe_account.settle(0.0)
        if not any(report.choice.lengths):
            self._account.settle(0.0)
            self._learn_plain(report)
            return
        self._planner.note_drafts()
        self._settle(report)
        if self._studies:
            self._num_studied += 1
            self._lessons.add(Lesson(self._step, report, self._asked.arms, self._probed, self._charged))
            often = self._num_studied <= OFTEN_AT_FIRST or len(self._probed) > 0
            if often or self._num_studied % COSTS_EVERY == 0:
                self._learn_pass(report)
                self._learn_drafting(report)

    def _settle(self, report: StepReport) -> None:
        """Book what the drafts gained: their tokens at the price of plain ones, less what they cost."""
        num_requests = len(report.outcomes)
        num_drafted = sum([outcome.num_verified for outcome in report.outcomes])
        num_accepted = sum([outcome.num_accepted for outcome in report.outcomes])
        sizes = num_requests, report.num_tokens - num_drafted, report.num_tokens
        plain_s, before_s, pass_s = [self._learned.step_cost.pass_s(num_requests, size) for size in sizes]
        drafting_s = min(sum(report.propose_s), MAX_BOOKED * plain_s)
        lost = (pass_s - before_s + drafting_s) / max(plain_s, 1e-9)
        self._account.settle(num_accepted / num_requests - lost)

    def _learn_plain(self, report: StepReport) -> None:
        if report.num_prefill_tokens:
            return
        self._num_plain += 1
        num_requests = len(report.outcomes)
        often = self._num_plain <= OFTEN_AT_FIRST or self._plain_checks.due(num_requests, self._step)
        if often or self._num_plain % PLAIN_COSTS_EVERY == 0:
            self._learn_pass(report)
            self._plain_checks.plain_step(num_requests, self._step)

    def _learn_pass(self, report: StepReport) -> None:
        if report.num_prefill_tokens:
            return  # attention over prompts costs something else
        pass_s = report.step_s - sum(report.propose_s)
        self._learned.step_cost.observe(len(report.outcomes), report.num_tokens, pass_s)

    def _learn_drafting(self, report: StepReport) -> None:
        for member, cost in enumerate(self._learned.drafting):
            pairs = zip(report.choice.members, report.choice.lengths, strict=True)
            asked = [length for who, length in pairs if who == member and length]
            if asked:
                unread, seconds = self._asked.unread[member], report.propose_s[member]
                cost.observe(max(asked), sum(asked), unread, seconds)

    def release(self, request_id: str) -> None:
        """See ``DraftLengthController.release``."""
        self._lessons.learn()  # while it has its row
        row = self._requests.release(request_id)
        if row is not None:
            self._fit()
            self._planner.clear(row)
            self._learned.acceptance.clear(row)
            self._turns.clear(row)
