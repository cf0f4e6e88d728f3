"""How likely a drafted token is accepted, learned from outcomes per request, arm and place.

An *arm* is a member of the proposer together with what it said of the request before it drafted: a look-up
that found a long match is another thing than one that found a short one. Arm 0 stands for no draft at all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foredraft.scheduler.speculation.request_rows import SHARED, Floats, Ints, grown

Bools = NDArray[np.bool_]

SLOW_DECAY = 0.97
FAST_DECAY = 0.8
"""Per draft. Means over about 30 drafts are used; those over about 5 notice a change."""

RECENT_VARIANCE = (1 - FAST_DECAY) / (1 + FAST_DECAY)
"""Of the mean over the recent drafts, in units of a single one's."""

ALARM = 2.7
"""Standard errors between the two means that count as a change."""

OPTIMISM = 0.6
"""Acceptance taken for granted before anything is known: drafts are tried at first."""

OPTIMISM_WEIGHT = 2.0
SHARED_WEIGHT = 5.0
"""Observations that the other requests count for."""

DOUBTED_WEIGHT = 2.0
"""What those of a request count for after a change of all together."""

STALE_DECAY = 0.985
"""Per draft, for places further on: what was learned there is forgotten, and tried again."""

JUDGED, ACCEPTED, ASKED, DRAFTED = range(4)


@dataclass(frozen=True)
class Drafted:
    """What became of R drafts, all [R].

    Attributes:
        rows: of the requests (``RequestRows``).
        arms: 1 or more.
        asked: lengths given, at least 1.
        num_drafted: tokens the proposer returned.
        num_accepted: of which accepted.
        ended: whether the request ended among the accepted tokens, so that no later one was judged.
    """

    rows: Ints
    arms: Ints
    asked: Ints
    num_drafted: Ints
    num_accepted: Ints
    ended: Bools


class AcceptanceEstimator:
    """Decayed counts per request, arm and place, on top of those of all requests together.

    Two rates are kept apart: how often a token asked for is drafted at all, and how often a drafted one is
    accepted. A proposer that finds something rarely, and is right then, so keeps its good name while it finds
    nothing.

    Args:
        num_arms: arms, arm 0 included.
        max_draft_tokens: K.

    Attributes:
        num_changes: how often a change was noticed.
    """

    def __init__(self, num_arms: int, max_draft_tokens: int) -> None:
        self.num_changes = 0
        self._num_arms = num_arms
        self._places = np.arange(max_draft_tokens)
        self._counts = np.zeros((num_arms, 4, max_draft_tokens))  # [row * num_arms + arm]
        self._recent = np.zeros((num_arms, 2))  # judged and accepted at the first place

    def fit(self, size: int) -> None:
        """Make room for so many rows."""
        self._counts = grown(self._counts, size * self._num_arms)
        self._recent = grown(self._recent, size * self._num_arms)

    def clear(self, row: int) -> None:
        """Forget a request: its row begins with what the others know."""
        own = slice(row * self._num_arms, (row + 1) * self._num_arms)
        self._counts[own] = self._recent[own] = 0.0

    def shared_yields(self) -> Floats:
        """[A, K], as ``yields``, for a request of which nothing is known."""
        accepting, drafting = self._shared_rates()
        return np.asarray(np.cumprod(accepting, axis=1) * drafting)

    def yields(self, rows: Ints) -> tuple[Floats, Floats]:
        """Of each request, arm and place asked for: how likely accepted, how likely drafted; [B, A, K].

        Meaningless for arm 0.
        """
        accepting, drafting = self._shared_rates()
        shape = (-1, self._num_arms, *self._counts.shape[1:])
        counts = self._counts.reshape(shape)[rows]
        rates = (counts[:, :, ACCEPTED] + SHARED_WEIGHT * accepting) / (counts[:, :, JUDGED] + SHARED_WEIGHT)
        drafted = (counts[:, :, DRAFTED] + SHARED_WEIGHT * drafting) / (counts[:, :, ASKED] + SHARED_WEIGHT)
        drafted = np.minimum.accumulate(drafted, axis=2)
        return np.cumprod(rates, axis=2) * drafted, drafted

    def _shared_rates(self) -> tuple[Floats, Floats]:
        """[A, K], acceptance at each place given those before it, and drafted shares. A place of which little
        is known is like the other places of its arm."""
        judged, accepted, asked, drafted = self._counts[: self._num_arms].transpose(1, 0, 2)
        known = judged.sum(1, keepdims=True)
        usual = (accepted.sum(1, keepdims=True) + OPTIMISM_WEIGHT * OPTIMISM) / (known + OPTIMISM_WEIGHT)
        rates = (accepted + OPTIMISM_WEIGHT * usual) / (judged + OPTIMISM_WEIGHT)
        return rates, (drafted + OPTIMISM_WEIGHT) / (asked + OPTIMISM_WEIGHT)

    def observe(self, drafts: Drafted) -> None:
        """Learn from the drafts of a step."""
        judged = np.minimum(drafts.num_drafted, drafts.num_accepted + ~drafts.ended)
        ends = np.stack([judged, drafts.num_accepted, drafts.asked, drafts.num_drafted], axis=1)
        tried_ends = ends[:, [DRAFTED, DRAFTED, ASKED, ASKED]]
        seen, tried = self._places < ends[:, :, None], self._places < tried_ends[:, :, None]
        cells = drafts.rows * self._num_arms + drafts.arms
        self._counts[cells] = self._counts[cells] * np.where(tried, SLOW_DECAY, STALE_DECAY) + seen
        of_arm = (drafts.arms == np.arange(self._num_arms)[:, None]).astype(np.float64)  # [A, R]
        arms = np.flatnonzero(of_arm.any(1))
        self._observe_shared(arms, of_arm[arms], seen, tried)
        self._note_recent(np.concatenate([cells, arms]), ends, of_arm[arms])

    def _observe_shared(self, arms: Ints, of_arm: Floats, seen: Bools, tried: Bools) -> None:
        """The mean over the requests counts as one draft."""
        shape = (len(arms), *seen.shape[1:])
        num_tried = (of_arm @ tried.reshape(len(seen), -1)).reshape(shape)
        sums = (of_arm @ seen.reshape(len(seen), -1)).reshape(shape)
        decay = np.where(num_tried > 0, SLOW_DECAY, STALE_DECAY)
        self._counts[arms] = self._counts[arms] * decay + sums / np.maximum(num_tried, 1)

    def _note_recent(self, cells: Ints, ends: Ints, of_arm: Floats) -> None:
        """The first place, of the requests and of all together, where anything was drafted."""
        first = np.minimum(ends[:, [JUDGED, ACCEPTED]], 1)
        drafted = of_arm @ (ends[:, DRAFTED] > 0)
        seen = np.concatenate([first, of_arm @ first / np.maximum(drafted, 1)[:, None]])
        noted = np.concatenate([ends[:, DRAFTED] > 0, drafted > 0])
        recent = self._recent[cells] * np.where(noted, FAST_DECAY, 1.0)[:, None] + seen
        self._recent[cells] = recent
        known = self._counts[cells, :2, 0]
        known_rate = known[:, ACCEPTED] / np.maximum(known[:, JUDGED], 1e-9)
        recent_rate = recent[:, 1] / np.maximum(recent[:, 0], 1e-9)
        error = np.sqrt(known_rate * (1 - known_rate) * RECENT_VARIANCE + 0.002)
        for place in np.flatnonzero((np.abs(recent_rate - known_rate) > ALARM * error) & noted):
            self._start_over(int(cells[place]), recent[place])
            if cells[place] < self._num_arms:
                self._doubt_requests(int(cells[place]))

    def _doubt_requests(self, arm: int) -> None:
        """What requests showed before all together changed counts little."""
        counts = self._counts[self._num_arms + arm :: self._num_arms, :2]
        counts *= np.minimum(1.0, DOUBTED_WEIGHT / np.maximum(counts[:, JUDGED, :1], 1e-9))[:, :, None]

    def trust_recent(self, rows: Ints) -> None:
        """Believe the recent drafts alone, for these requests and for all together."""
        for row in [*rows.tolist(), SHARED]:
            for cell in range(row * self._num_arms, (row + 1) * self._num_arms):
                if self._recent[cell, 0] > 0:
                    self._start_over(cell, self._recent[cell])

    def _start_over(self, cell: int, recent: Floats) -> None:
        """Let counts weigh no more than the recent drafts do, and keep only these at the first place."""
        self.num_changes += 1
        counts = self._counts[cell, :2]
        counts *= recent[0] / max(counts[JUDGED, 0], recent[0])
        counts[:, 0] = recent
