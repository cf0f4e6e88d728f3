"""Draft lengths that emit most tokens per second, and never fewer than no speculation for long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from foredraft.scheduler.acceptance import AcceptanceEstimator, Drafted, Ints
from foredraft.scheduler.drafting_cost import DraftingCost
from foredraft.scheduler.explanation import explanation
from foredraft.scheduler.length_search import PLAIN, Floats, Plan, Search, depths_up_to, search_lengths
from foredraft.scheduler.loss_account import LossAccount
from foredraft.scheduler.probes import BatchChecks, RequestProbes
from foredraft.scheduler.speculation import Decision, DraftLengthController, DraftRequest, StepReport
from foredraft.scheduler.step_cost import StepCost

SWITCH_GAIN = 1.02
"""Another plan must promise this much more: a plan near its threshold would be left and taken up again."""

STOP_GAIN = 1.005
"""The same for no drafts at all, where the promise of never being slower is at stake."""

MAX_BOOKED = 5.0
"""Plain steps that the drafting of one step is booked with at most: a pause of the machine is not its fault."""

ENTRY_STEPS = 32
"""Steps that taking up drafting is paid off over, at most half of those that a request has left."""


@dataclass(frozen=True)
class _Batch:
    """The requests of a step: [B] slots, caps, and tokens that a draft model would first have to read."""

    names: list[str]
    slots: Ints
    caps: Ints
    unread: Floats
    num_prefill_tokens: int


class AdaptiveDraftLength(DraftLengthController):
    """Chooses lengths by expected tokens per second of the whole batch, from acceptance and costs it measures.

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
        self._plain_checks = BatchChecks(first=2, offset=0)
        self._depth_checks = BatchChecks(first=3, offset=3)
        self._deeper = False
        self._depths = depths_up_to(max_draft_tokens)
        self._plan = PLAIN
        self._step = 0
        self._read: dict[str, int] = {}  # committed tokens when a request last drafted
        self._unread_asked = 0.0

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
        search = self._search(batch, requests)
        reason = self._choose(search, len(requests))
        plan = self._tried(len(requests)) if reason == "gain" else self._plan
        lengths = search.lengths[plan.price, :, plan.depth]
        num_probes = 0
        if plan == self._plan and self._account.open:
            lengths, num_probes = self._with_probes(lengths, batch)
        self._unread_asked = float(batch.unread[lengths > 0].sum())
        self._note(search, lengths, num_probes, reason)
        return [int(length) for length in lengths]

    def _batch(self, requests: Sequence[DraftRequest], num_prefill_tokens: int) -> _Batch:
        names = [request.request_id for request in requests]
        read = self._read
        return _Batch(
            names,
            self._acceptance.slots(names),
            np.array([request.cap(self.max_draft_tokens) for request in requests], dtype=np.int64),
            np.array([request.context_len - read.get(request.request_id, 0) for request in requests], dtype=float),
            num_prefill_tokens,
        )

    def _first_step(self, batch: _Batch) -> list[int]:
        """Without any cost known: a plain step, to have one."""
        self.decision = Decision(0, 0, 0.0, "first step")
        return [0] * len(batch.names)

    def _search(self, batch: _Batch, requests: Sequence[DraftRequest]) -> Search:
        accepted, drafted = self._acceptance.yields(batch.slots)
        num_plain = len(requests) + batch.num_prefill_tokens

        def cost(num_tokens: Floats, num_steps: Floats, num_asked: Floats) -> Floats:
            target_s = self._step_cost.seconds(len(requests), num_plain + num_tokens)
            return np.asarray(target_s + self._drafting_cost.seconds(num_steps, num_asked))

        entry = np.zeros(len(requests))
        if self._drafting_cost.per_unread_token > 0:
            room = np.array([request.room for request in requests], dtype=float)
            steps = np.clip(room / 2, 1, ENTRY_STEPS)
            plain_s = float(self._step_cost.seconds(len(requests), np.array([num_plain]))[0])
            entry_s = self._drafting_cost.per_unread_token * batch.unread / steps
            entry = entry_s * len(requests) / plain_s
        return search_lengths(accepted, drafted, batch.caps, entry, self._depths, cost)

    def _choose(self, search: Search, num_requests: int) -> str:
        """Move to another plan where it promises enough; returns why the plan is what it is."""
        if not self._account.open:
            self._plan = PLAIN
            return "nothing left to lose"
        best = search.best()
        gain = search.rate(best) / search.rate(self._plan)
        if gain > (SWITCH_GAIN if best.depth else STOP_GAIN):
            self._plan = best
        elif search.rate(PLAIN) > STOP_GAIN * search.rate(self._plan):
            self._plan = PLAIN
        return "gain" if self._plan.depth else "no gain"

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
        """One token for requests that the plan leaves out and whose turn it is, as far as that can be paid."""
        due = [
            place
            for place in self._probes.due(batch.names, self._step)
            if lengths[place] == 0 and batch.caps[place] > 0
        ]
        for chosen in (due, due[:1]):
            if chosen and self._affords(chosen, lengths, batch):
                lengths = lengths.copy()
                lengths[chosen] = 1
                return lengths, len(chosen)
        return lengths, 0

    def _affords(self, chosen: list[int], lengths: Ints, batch: _Batch) -> bool:
        num_requests = len(batch.names)
        before = num_requests + batch.num_prefill_tokens + int(lengths.sum())
        plain_s, with_s = self._step_cost.seconds(num_requests, np.array([before, before + len(chosen)], float))
        unread = float(batch.unread[chosen].sum())
        drafting = self._drafting_cost.seconds(np.array([1.0]), np.array([float(len(chosen))]), unread)
        return self._account.affords(float(with_s - plain_s + drafting[0]), float(plain_s))

    def _note(self, search: Search, lengths: Ints, num_probes: int, reason: str) -> None:
        before = self.decision
        depth = int(search.depths[self._plan.depth])
        planned = self._plan if reason == "gain" else PLAIN
        self.decision = Decision(
            depth,
            num_probes,
            search.rate(planned),
            reason,
            {int(d): float(r) for d, r in zip(search.depths, search.tokens_per_s.max(axis=0), strict=True)},
            self._acceptance.shared_yields(),
            (float(search.seconds[0, 0]), float(search.seconds[planned.price, planned.depth])),
        )
        changed = before is None or before.num_draft_tokens != depth
        if self.on_change is not None and changed:
            self.on_change(explanation(self.decision, self._step, len(lengths)))

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

    def _learn_acceptance(self, report: StepReport, asked: Ints, num_drafted: Ints, num_accepted: Ints) -> None:
        places = np.flatnonzero(asked)
        outcomes = [report.outcomes[place] for place in places]
        names = [outcome.request_id for outcome in outcomes]
        ended = np.array([len(one.committed_ids) <= one.num_accepted for one in outcomes])
        drafts = Drafted(asked[places], num_drafted[places], num_accepted[places], ended)
        self._acceptance.observe(self._acceptance.slots(names), drafts)
        for name, outcome in zip(names, outcomes, strict=True):
            self._probes.drafted(name, outcome.num_accepted, self._step)
            self._read[name] = outcome.block_start + len(outcome.committed_ids)

    def _settle(self, report: StepReport, num_drafted: int, num_accepted: int) -> None:
        """Book what this step's drafts gained: their tokens at the price of plain ones, less what they cost."""
        num_requests = len(report.outcomes)
        num_plain = report.num_tokens - num_drafted
        plain_s, pass_s = self._step_cost.seconds(num_requests, np.array([num_plain, report.num_tokens], float))
        drafting_s = min(report.propose_s, MAX_BOOKED * float(plain_s)) if any(report.asked) else 0.0
        gained_s = num_accepted * float(plain_s) / num_requests
        self._account.settle(gained_s - float(pass_s - plain_s) - drafting_s, float(plain_s))

    def release(self, request_id: str) -> None:
        """See ``DraftLengthController.release``."""
        self._acceptance.release(request_id)
        self._probes.release(request_id)
        self._read.pop(request_id, None)
