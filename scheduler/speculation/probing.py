"""Which requests a member is tried for, and with how many tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foredraft.scheduler.speculation.drafting_cost import PER_UNREAD
from foredraft.scheduler.speculation.learned import Learned
from foredraft.scheduler.speculation.members import Member
from foredraft.scheduler.speculation.probes import RequestProbes
from foredraft.scheduler.speculation.request_rows import Floats, Ints
from foredraft.scheduler.speculation.running import Running

MAX_PROBE = 6
"""Tokens of a probe at most; fewer where a pass over fewer costs less, which is not always so."""

MOST_OF_BALANCE = 1 / 8
"""Of what may be lost, the share that is put on one step of probes; for a single request all of it."""


class Probing:
    """Gives members whose turn it is a try, in place of what the plan says.

    Args:
        turns: who was tried when.
    """

    def __init__(self, learned: Learned, members: Sequence[Member], turns: RequestProbes) -> None:
        self._learned = learned
        self._members = members
        self._turns = turns

    def add(self, now: Running, chosen: tuple[Ints, Ints, Floats], balance: float, step: int) -> Ints:
        """Change what the plan says for some requests.

        Args:
            chosen: lengths and members, changed in place, and what they are worth (``Planner.chosen``).
            balance: plain steps that may be lost if nothing is accepted.

        Returns:
            Rows of the requests it is tried for.
        """
        lengths, who, worth = chosen
        due = self._turns.due(now.rows, now.arms, lengths > 0, step) & (now.caps > 0)[:, None]
        due[lengths > 0, who[lengths > 0]] = False
        if not due.any():
            return now.rows[:0]
        num_planned, is_tried = int(lengths.sum()), np.zeros(len(now), dtype=np.bool_)
        for member in np.flatnonzero(due.any(axis=0)).tolist():
            wanted = self._hopeful(now, np.flatnonzero(due[:, member]), member, worth, step)
            length, tried = self._affordable(now, wanted, member, num_planned, balance)
            lengths[tried], who[tried] = np.minimum(length, now.caps[tried]), member
            due[tried] = False
            is_tried[tried] = True
        return now.rows[is_tried]

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
        self, now: Running, wanted: Ints, member: int, num_planned: int, balance: float
    ) -> tuple[int, Ints]:
        """The cheapest length, and as many requests as the account can pay for if nothing is accepted, in
        turn; if not even the first, the one of which least must be read."""
        most = min(self._members[member].max_draft_tokens, MAX_PROBE)
        per_unread = self._learned.drafting[member].costs[PER_UNREAD] / self._learned.plain_s(len(now))
        wanted = wanted[self._turns.in_turn(now.rows[wanted], now.arms[wanted, member])]
        least_unread = wanted[np.argsort(now.unread[wanted, member], kind="stable")]
        for tried in (wanted, wanted[: len(wanted) // 4], wanted[:1], least_unread[:1]):
            if not len(tried):
                continue
            loss = self._loss(member, len(now), len(now) + num_planned, len(tried), most)
            lost = loss.min() + per_unread * now.unread[tried, member].sum()
            if lost <= (balance if len(tried) == 1 else balance * MOST_OF_BALANCE):
                return int(loss.argmin()) + 1, tried
        return 0, wanted[:0]

    def _loss(self, member: int, num_requests: int, before: int, num_tried: int, most: int) -> Floats:
        """[most], plain steps that drafts of so many tokens for ``num_tried`` requests cost, beside
        ``before`` tokens in the pass; without what has to be read first."""
        lengths = np.arange(1, most + 1)
        num_tokens = np.concatenate([[num_requests, before], before + num_tried * lengths]).astype(np.float64)
        plain_s, before_s, *_ = pass_s = self._learned.step_cost.seconds(num_requests, num_tokens)
        fixed, per_step, per_asked, _ = self._learned.drafting[member].costs
        drafting_s = fixed + (per_step + per_asked * num_tried) * lengths
        return np.asarray((pass_s[2:] - before_s + drafting_s) / plain_s)
