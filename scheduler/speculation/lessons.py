"""What drafts have shown, taken up a few steps at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from foredraft.scheduler.speculation.acceptance import AcceptanceEstimator, Bools, Drafted
from foredraft.scheduler.speculation.contract import StepReport
from foredraft.scheduler.speculation.loss_account import LossAccount
from foredraft.scheduler.speculation.planner import Planner, study_interval
from foredraft.scheduler.speculation.probes import RequestProbes
from foredraft.scheduler.speculation.request_rows import Ints
from foredraft.scheduler.speculation.running import RequestTable

LEARNED_STEPS = 4
"""Steps that may wait to be learned from. After a pass of the model everything is cold, and learning from
four steps costs hardly more than from one."""

LEARNED_AT_ONCE = 30
"""The first steps do not wait: what is assumed before them can be far off."""


@dataclass(frozen=True)
class Lesson:
    """A step that drafted.

    Attributes:
        arms: by which arm each request drafted (``RequestTable.note_asked``).
        probed, charged: rows that drafted to learn, and whether the probes' account paid for it.
    """

    step: int
    report: StepReport
    arms: Mapping[str, int]
    probed: Ints
    charged: bool


class Lessons:
    """Steps yet to be learned from: by the means of acceptance, and by who decides on probes.

    Args:
        probe_account: charged for probes as if nothing were accepted (``Probing``); what was comes back.
    """

    def __init__(
        self,
        acceptance: AcceptanceEstimator,
        requests: RequestTable,
        turns: RequestProbes,
        planner: Planner,
        probe_account: LossAccount,
    ) -> None:
        self._acceptance = acceptance
        self._requests = requests
        self._turns = turns
        self._planner = planner
        self._probe_account = probe_account
        self._waiting: list[Lesson] = []
        self._num_added = 0

    def add(self, lesson: Lesson) -> None:
        """Learn from a step, now or with some of the next."""
        self._waiting.append(lesson)
        self._num_added += 1
        num_steps = len(self._waiting) * study_interval(len(lesson.report.outcomes))
        if num_steps >= LEARNED_STEPS or self._num_added <= LEARNED_AT_ONCE or len(lesson.probed):
            self.learn()

    def learn(self) -> None:
        """Learn from all that wait; before a plan is made, and before a request's row is given up."""
        lessons, self._waiting = self._waiting, []
        for lesson in lessons:
            self._learn(lesson)

    def _learn(self, lesson: Lesson) -> None:
        report = lesson.report
        columns = [
            (one.num_verified, one.num_accepted, len(one.committed_ids), lesson.arms.get(one.request_id, 0))
            for one in report.outcomes
        ]
        lengths = np.array(report.choice.lengths, dtype=np.int64)
        places = np.flatnonzero(lengths)
        rows = self._requests.rows_of([outcome.request_id for outcome in report.outcomes])[places]
        who = np.array(report.choice.members, dtype=np.int64)[places]
        drafted, accepted, committed, arms = np.array(columns, dtype=np.int64)[places].T
        ended = committed <= accepted
        self._acceptance.observe(Drafted(rows, arms, lengths[places], drafted, accepted, ended))
        self._turns.drafted(rows, arms, drafted, accepted, lesson.step)
        if len(lesson.probed):
            probed = np.isin(rows, lesson.probed)
            if lesson.charged:
                self._probe_account.book(float(accepted[probed].sum()) / len(report.outcomes))
            self._note_probes(probed, who, accepted, lesson.step)

    def _note_probes(self, probed: Bools, who: Ints, num_accepted: Ints, step: int) -> None:
        for member in np.flatnonzero(np.bincount(who[probed])).tolist():
            hit = bool(num_accepted[probed & (who == member)].any())
            self._turns.probed(member, hit=hit, step=step)
            if hit:
                self._planner.hurry(step)
