"""How likely a drafted token is accepted, per request and place, learned from outcomes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foredraft.scheduler.request_slots import SHARED, Ints, grown

Floats = NDArray[np.float64]

SLOW_DECAY = 0.97
FAST_DECAY = 0.8
"""Per step that drafted. Means over about 30 steps are used; those over about 5 notice a change."""

RECENT_VARIANCE = (1 - FAST_DECAY) / (1 + FAST_DECAY)
"""Of the mean over the recent steps, in units of a single one's."""

ALARM = 2.7
"""Standard errors between the two means that count as a change."""

OPTIMISM = 0.6
"""Acceptance taken for granted before anything is known: drafts are tried at first."""

OPTIMISM_WEIGHT = 2.0
SHARED_WEIGHT = 5.0
"""Observations that the other requests count for."""

STALE_DECAY = 0.985
"""Per step that drafted, for places further on: what was learned there is forgotten, and tried again."""

JUDGED, ACCEPTED, ASKED, DRAFTED = range(4)


@dataclass(frozen=True)
class Drafted:
    """What became of R drafts, all [R].

    Attributes:
        asked: lengths given, at least 1.
        num_drafted: tokens the proposer returned.
        num_accepted: of which accepted.
        ended: whether the request ended among the accepted tokens, so that no later one was judged.
    """

    asked: Ints
    num_drafted: Ints
    num_accepted: Ints
    ended: NDArray[np.bool_]


class AcceptanceEstimator:
    """Decayed counts per request and place, on top of those of all requests together.

    Two rates are kept apart: how often a token asked for is drafted at all, and how often a drafted one is
    accepted. A proposer that finds something rarely, and is right then, so keeps its good name while it finds
    nothing.
    """

    def __init__(self, max_draft_tokens: int) -> None:
        self._places = np.arange(max_draft_tokens)
        self._counts = np.zeros((1, 4, max_draft_tokens))
        self._recent = np.zeros((1, 2))  # judged and accepted at the first place

    def fit(self, size: int) -> None:
        """Make room for so many rows; requests are named by their rows (``RequestSlots``)."""
        if len(self._counts) < size:
            self._counts, self._recent = grown(self._counts, size), grown(self._recent, size)

    def clear(self, slot: int) -> None:
        """Forget a request: its row begins with what the others know."""
        self._counts[slot] = self._recent[slot] = 0.0

    def shared_yields(self) -> Floats:
        """[K], as ``yields``, for a request of which nothing is known."""
        return np.asarray(np.cumprod(self._shared_rates()[0]))

    def yields(self, slots: Ints) -> tuple[Floats, Floats]:
        """Of each request and place that is asked for: how likely accepted, how likely drafted; [B, K]."""
        accepting, drafting = self._shared_rates()
        counts = self._counts[slots]
        rates = (counts[:, ACCEPTED] + SHARED_WEIGHT * accepting) / (counts[:, JUDGED] + SHARED_WEIGHT)
        drafted = (counts[:, DRAFTED] + SHARED_WEIGHT * drafting) / (counts[:, ASKED] + SHARED_WEIGHT)
        drafted = np.minimum.accumulate(drafted, axis=1)
        return np.cumprod(rates, axis=1) * drafted, drafted

    def _shared_rates(self) -> tuple[Floats, Floats]:
        """Acceptance at each place given those before it, and drafted shares; a place without counts is like
        the one before it."""
        judged, accepted, asked, drafted = self._counts[SHARED]
        rates, rate = [], OPTIMISM
        for num_judged, num_accepted in zip(judged.tolist(), accepted.tolist(), strict=True):
            rate = (num_accepted + OPTIMISM_WEIGHT * rate) / (num_judged + OPTIMISM_WEIGHT)
            rates.append(rate)
        return np.array(rates), (drafted + OPTIMISM_WEIGHT) / (asked + OPTIMISM_WEIGHT)

    def observe(self, slots: Ints, drafts: Drafted) -> None:
        """Learn from the drafts of a step."""
        places = self._places
        asked = places < drafts.asked[:, None]
        drafted = places < drafts.num_drafted[:, None]
        accepted = places < drafts.num_accepted[:, None]
        judged = drafted & (places < (drafts.num_accepted + ~drafts.ended)[:, None])
        seen = np.stack([judged, accepted, asked, drafted], axis=1)
        tried = np.stack([drafted, drafted, asked, asked], axis=1)
        counts = self._counts[slots]
        counts *= np.where(tried, SLOW_DECAY, STALE_DECAY)
        counts += seen
        self._counts[slots] = counts
        num_tried = tried.sum(axis=0)
        self._counts[SHARED] *= np.where(num_tried > 0, SLOW_DECAY, STALE_DECAY)
        self._counts[SHARED] += seen.sum(axis=0) / np.maximum(num_tried, 1)
        found = drafts.num_drafted > 0
        if found.any():
            self._note_recent(slots[found], seen[found, :2, 0].astype(np.float64))

    def _note_recent(self, slots: Ints, seen: Floats) -> None:
        rows = np.append(slots, SHARED)
        recent = FAST_DECAY * self._recent[rows] + np.vstack([seen, seen.mean(axis=0)])
        self._recent[rows] = recent
        known_rate = self._counts[rows, ACCEPTED, 0] / np.maximum(self._counts[rows, JUDGED, 0], 1e-9)
        recent_rate = recent[:, 1] / np.maximum(recent[:, 0], 1e-9)
        error = np.sqrt(known_rate * (1 - known_rate) * RECENT_VARIANCE + 0.002)
        for place in np.flatnonzero(np.abs(recent_rate - known_rate) > ALARM * error):
            self._start_over(int(rows[place]), recent[place])

    def trust_recent(self, slots: Ints) -> None:
        """Believe the recent steps alone, for these requests and for all together."""
        for row in [*slots.tolist(), SHARED]:
            if self._recent[row, 0] > 0:
                self._start_over(row, self._recent[row])

    def _start_over(self, row: int, recent: Floats) -> None:
        """Let counts weigh no more than the recent steps do, and keep only these at the first place."""
        counts = self._counts[row, :2]
        counts *= recent[0] / max(counts[JUDGED, 0], recent[0])
        counts[:, 0] = recent
