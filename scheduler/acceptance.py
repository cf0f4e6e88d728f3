"""How likely a drafted token is accepted, per request and place, learned from outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SLOW_DECAY = 0.95
FAST_DECAY = 0.8
"""Per step that drafted. Means over about 20 steps are used; means over about 5 notice that they are outdated."""

ALARM = 2.5
"""Standard errors between the two means that count as a change."""

OPTIMISM = 0.6
"""Acceptance taken for granted before anything is known: drafts are tried at first."""

OPTIMISM_WEIGHT = 2.0
SHARED_WEIGHT = 3.0
"""Observations that the other requests count for."""

STALE_DECAY = 0.998
"""Per step, for places that nobody asked for: what was learned there is slowly forgotten."""

SHARED = 0
REACHED, ACCEPTED, ASKED, DRAFTED = range(4)


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

    Place j counts as reached when it was asked for and all before it were accepted; as accepted when a token
    was drafted there and accepted. What a proposer asked for and did not get is so a miss, as it should be.
    """

    def __init__(self, max_draft_tokens: int) -> None:
        self._places = np.arange(max_draft_tokens)
        self._counts = np.zeros((16, 4, max_draft_tokens))
        self._recent = np.zeros((16, 2))  # reached and accepted at the first place
        self._slots: dict[str, int] = {}
        self._free = list(range(15, SHARED, -1))

    def slots(self, request_ids: Sequence[str]) -> Ints:
        """Where each request is kept; new ones begin with what the others know."""
        return np.array([self._slots.get(name) or self._new_slot(name) for name in request_ids], dtype=np.int64)

    def _new_slot(self, request_id: str) -> int:
        if not self._free:
            size = len(self._counts)
            self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
            self._recent = np.concatenate([self._recent, np.zeros_like(self._recent)])
            self._free = list(range(2 * size - 1, size - 1, -1))
        slot = self._slots[request_id] = self._free.pop()
        self._counts[slot] = self._recent[slot] = 0.0
        return slot

    def release(self, request_id: str) -> None:
        """Forget a request."""
        slot = self._slots.pop(request_id, None)
        if slot is not None:
            self._free.append(slot)

    def shared_yields(self) -> Floats:
        """[K], as ``yields``, for a request of which nothing is known."""
        return np.asarray(np.cumprod(self._shared_rates()[0]))

    def yields(self, slots: Ints) -> tuple[Floats, Floats]:
        """Of each request and place, if it is asked for: how likely accepted, and how likely drafted; [B, K]."""
        accepting, drafting = self._shared_rates()
        counts = self._counts[slots]
        rates = (counts[:, ACCEPTED] + SHARED_WEIGHT * accepting) / (counts[:, REACHED] + SHARED_WEIGHT)
        drafted = (counts[:, DRAFTED] + SHARED_WEIGHT * drafting) / (counts[:, ASKED] + SHARED_WEIGHT)
        drafted = np.minimum.accumulate(drafted, axis=1)
        return np.minimum(np.cumprod(rates, axis=1), drafted), drafted

    def _shared_rates(self) -> tuple[Floats, Floats]:
        """Acceptance at each place given those before it, and drafted shares; a place without counts is like
        the one before it."""
        reached, accepted, asked, drafted = self._counts[SHARED]
        rates, rate = [], OPTIMISM
        for num_reached, num_accepted in zip(reached.tolist(), accepted.tolist(), strict=True):
            rate = (num_accepted + OPTIMISM_WEIGHT * rate) / (num_reached + OPTIMISM_WEIGHT)
            rates.append(rate)
        return np.array(rates), (drafted + OPTIMISM_WEIGHT) / (asked + OPTIMISM_WEIGHT)

    def observe(self, slots: Ints, drafts: Drafted) -> None:
        """Learn from the drafts of a step."""
        places = self._places
        asked = places < drafts.asked[:, None]
        accepted = places < drafts.num_accepted[:, None]
        judged = places < (drafts.num_accepted + ~drafts.ended)[:, None]
        seen = np.stack([asked & judged, accepted, asked, places < drafts.num_drafted[:, None]], axis=1)
        self._counts[slots] *= np.where(asked, SLOW_DECAY, 1.0)[:, None]
        self._counts[slots] += seen
        anyone = asked.sum(axis=0)
        self._counts[SHARED] *= np.where(anyone > 0, SLOW_DECAY, STALE_DECAY)
        self._counts[SHARED] += seen.sum(axis=0) / np.maximum(anyone, 1)
        self._note_recent(slots, seen[:, :2, 0].astype(np.float64))

    def _note_recent(self, slots: Ints, seen: Floats) -> None:
        rows = np.append(slots, SHARED)
        self._recent[rows] = FAST_DECAY * self._recent[rows] + np.vstack([seen, seen.mean(axis=0)])
        recent = self._recent[rows]
        known = self._counts[rows][:, :2, 0]
        recent_rate = recent[:, 1] / np.maximum(recent[:, 0], 1e-9)
        known_rate = known[:, 1] / np.maximum(known[:, 0], 1e-9)
        error = np.sqrt(known_rate * (1 - known_rate) / 5 + 0.01)
        for place in np.flatnonzero(np.abs(recent_rate - known_rate) > ALARM * error):
            self._start_over(int(rows[place]), recent[place])

    def _start_over(self, row: int, recent: Floats) -> None:
        """Keep of a request's counts no more weight than the recent steps have, and at the first place these."""
        counts = self._counts[row, :2]
        counts *= recent[0] / max(counts[REACHED, 0], recent[0])
        counts[:, 0] = recent
