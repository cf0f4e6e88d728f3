"""Whether drafting ahead pays for a target, by its own step times."""

from __future__ import annotations

from collections import deque
from statistics import median

from foredraft.proposers.remote_messages import DraftAhead

ENOUGH = 8
"""Steps of a kind before the two are compared."""

REMEMBERED = 31
FIRST_PROBE = 16
LAST_PROBE = 512


class AheadPolicy:
    """One target's choice, step by step.

    ``auto`` times whole steps, from one answer to the next, with and without drafting ahead: a miss keeps
    the target waiting, and a draft that shares a processor with its target slows it. It does what was faster
    in the median, and tries the other, ``ENOUGH`` steps in a row, now and then: the more often the same wins,
    the more rarely.
    """

    def __init__(self, mode: DraftAhead = "auto") -> None:
        self.mode = mode
        self.num_hits = self.num_misses = 0
        self._times: dict[bool, deque[float]] = {ahead: deque(maxlen=REMEMBERED) for ahead in (False, True)}
        self._ahead = mode == "on"
        self._left = ENOUGH  # steps until the next decision
        self._probing = mode == "auto"
        self._between_probes = FIRST_PROBE

    @property
    def wants(self) -> bool:
        """Whether to draft ahead now."""
        return self._ahead

    @property
    def hit_rate(self) -> float | None:
        """Share of assumptions that came true; ``None`` while there were none."""
        total = self.num_hits + self.num_misses
        return self.num_hits / total if total else None

    def note_outcome(self, hit: bool) -> None:
        """One request's assumption came true, or did not."""
        self.num_hits += hit
        self.num_misses += not hit

    def note_step(self, seconds: float) -> None:
        """A step of the target is over, which ran as ``wants`` said."""
        if self.mode != "auto":
            return
        self._times[self._ahead].append(seconds)
        self._left -= 1
        if self._left <= 0:
            self._decide()

    def _decide(self) -> None:
        """At the end of a stretch: try the other way, or go with the faster one."""
        other = not self._ahead
        if not self._probing or len(self._times[other]) < ENOUGH:
            self._times[other].clear()
            self._ahead, self._probing, self._left = other, True, ENOUGH
            return
        best = min((median(times), ahead) for ahead, times in self._times.items())[1]
        # The probe was of what runs now; that the other way won again makes the next probe rarer.
        won_again = best != self._ahead
        self._between_probes = min(2 * self._between_probes, LAST_PROBE) if won_again else FIRST_PROBE
        self._ahead, self._probing, self._left = best, False, self._between_probes
