"""Which requests a member is tried for, and with how many tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foredraft.scheduler.speculation.drafting_cost import PER_UNREAD
from foredraft.scheduler.speculation.learned import Learned
from foredraft.scheduler.speculation.loss_account import LossAccount
from foredraft.scheduler.speculation.members import Member
from foredraft.scheduler.speculation.probes import RequestProbes
from foredraft.scheduler.speculation.request_rows import Floats, Ints
from foredraft.scheduler.speculation.running import Running

MAX_PROBE = 6
"""Tokens of a probe at most; fewer where a pass over fewer costs less, which is not always so."""

PROBE_STEPS = 6.0
"""Plain steps in the full account of the probes."""

MOST_OF_BALANCE = 1 / 8
"""Of what may be lost, the share that is put on one step of probes; for a single request all of it."""


class Probing:
    """Gives members whose turn it is a try, in place of what the plan says.

    Args:
        turns: who was tried when.
        account: what probes beside a plan that drafts may lose. There the balance of the batch is full, and
            would pay for any number of them; a plan of no drafts leaves them to that balance alone.
    """

    def __init__(
        self, learned: Learned, members: Sequence[Member], turns: RequestProbes, account: LossAccount
    ) -> None:
        self._learned = learned
        self._members = members
        self._turns = turns
        self._account = account

    def add(
        self, now: Running, chosen: tuple[Ints, Ints, Floats], balance: float, step: int
    ) -> tuple[Ints, bool]:
        """Change what the plan says for some requests.

        Args:
            chosen: lengths and members, changed in place, and what they are worth (``Planner.chosen``).
            balance: plain steps that may be lost if nothing is accepted.

        Returns:
            Rows of the requests something is tried for, and whether the account has been charged for it.
        """
        lengths, who, worth = chosen
        due = self._turns.due(now.rows, now.arms, lengths > 0, step) & (now.caps > 0)[:, None]
        due[lengths > 0, who[lengths > 0]] = False
        if not due.any():
            return now.rows[:0], False
        num_planned, is_tried = int(lengths.sum()), np.zeros(len(now), dtype=np.bool_)
        for member in np.flatnonzero(due.any(axis=0)).tolist():
            wanted = self._hopeful(now, np.flatnonzero(due[:, member]), member, worth, step)
            length, tried, lost = self._affordable(now, wanted, member, worth, num_planned, balance)
            if num_planned:
                self._account.book(-lost)
            lengths[tried], who[tried] = np.minimum(length, now.caps[tried]), member
            due[tried] = False
            is_tried[tried] = True
        return now.rows[is_tried], num_planned > 0

    def _hopeful(self, now: Running, wanted: Ints, member: int, worth: Floats, step: int) -> Ints:
        """For whom it could bring more than the plan, if all drafted and all were accepted. If long ago,
        for all: costs may have become others."""
        if not len(wanted):
            return wanted
        if not self._turns.long_ago(member, step):
            most = self._members[member].max_draft_tokens
            loss = self._loss(member, len(now), len(now), len(now), most)
            hope = (np.arange(1, most + 1) - loss).max()  # in tokens for each request
            wanted = wanted[worth[wanted] < hope]
        return wanted

    def _affordable(
        self, now: Running, wanted: Ints, member: int, worth: Floats, num_planned: int, balance: float
    ) -> tuple[int, Ints, float]:
        """The cheapest length, as many requests as the accounts can pay for if nothing is accepted, in turn,
        and what is lost then against the plan; if they cannot pay for the first, the one of which least must
        be read."""
        most = min(self._members[member].max_draft_tokens, MAX_PROBE)
        per_unread = self._learned.drafting[member].costs[PER_UNREAD] / self._learned.plain_s(len(now))
        wanted = wanted[self._turns.in_turn(now.rows[wanted], now.arms[wanted, member])]
        least_unread = wanted[np.argsort(now.unread[wanted, member], kind="stable")]
        for tried in (wanted, wanted[: len(wanted) // 4], wanted[:1], least_unread[:1]):
            if not len(tried):
                continue
            loss = self._loss(member, len(now), len(now) + num_planned, len(tried), most)
            lost = float(loss.min() + per_unread * now.unread[tried, member].sum())
            given_up = float(worth[tried].sum()) / len(now)
            of_batch = balance if len(tried) == 1 else balance * MOST_OF_BALANCE
            if lost <= of_batch and (not num_planned or self._pays_for(lost + given_up)):
                return int(loss.argmin()) + 1, tried, lost + given_up
        return 0, wanted[:0], 0.0

    def _pays_for(self, lost: float) -> bool:
        """Whether the account of the probes does. A full one pays for any: what is dear is tried too."""
        return min(lost, PROBE_STEPS) <= self._account.balance

    def _loss(self, member: int, num_requests: int, before: int, num_tried: int, most: int) -> Floats:
        """[most], plain steps that drafts of so many tokens for ``num_tried`` requests cost, beside
        ``before`` tokens in the pass; without what has to be read first."""
        lengths = np.arange(1, most + 1)
        num_tokens = np.concatenate([[num_requests, before], before + num_tried * lengths]).astype(np.float64)
        plain_s, before_s, *_ = pass_s = self._learned.step_cost.seconds(num_requests, num_tokens)
        fixed, per_step, per_asked, _ = self._learned.drafting[member].costs
        drafting_s = fixed + (per_step + per_asked * num_tried) * lengths
        return np.asarray((pass_s[2:] - before_s + drafting_s) / plain_s)
