"""Whether a variant is in or out, by what became of its requests and probes."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from foredraft.scheduler.serve.options import StandingPolicy

logger = logging.getLogger(__name__)


MAX_EVENTS = 100
MAX_LONGER = 64
"""How much longer a variant that was taken out again and again must prove itself, at most."""


@dataclass
class Standing:
    """One variant.

    Attributes:
        outcomes: (when, whether it failed) of the requests in the window.
        out_reason: why it is out; ``None`` = it is in.
        generated_at: when it last generated something; ``None`` = never.
        num_taken_out: how often.
    """

    outcomes: deque[tuple[float, bool]] = field(default_factory=deque)
    failed_probes: int = 0
    good_probes: int = 0
    out_reason: str | None = None
    generated_at: float | None = None
    num_taken_out: int = 0
    last_error: str | None = None


class Standings:
    """All variants.

    Args:
        weights: of each variant by name.
        clock: seconds; never goes back.
    """

    def __init__(
        self, weights: Mapping[str, float], policy: StandingPolicy, clock: Callable[[], float]
    ) -> None:
        self._weights = dict(weights)
        self._policy = policy
        self._clock = clock
        self.of = {name: Standing() for name in weights}
        self._events: deque[tuple[float, str, str]] = deque(maxlen=MAX_EVENTS)

    @property
    def weights(self) -> dict[str, float]:
        """Of the variants that are in."""
        return {name: weight for name, weight in self._weights.items() if self.of[name].out_reason is None}

    def note_request(self, name: str, error: str | None) -> None:
        """Count a request that ended; ``error`` = what failed, client's mistakes aside."""
        standing, now = self.of[name], self._clock()
        standing.outcomes.append((now, error is not None))
        self._forget_old(standing, now)
        if error is None:
            standing.generated_at = now
            standing.failed_probes = 0
            return
        standing.last_error = error
        num_failed, num_all = sum(failed for _, failed in standing.outcomes), len(standing.outcomes)
        if num_all >= self._policy.min_requests and num_failed / num_all > self._policy.max_error_rate:
            self._take_out(name, f"{num_failed} of {num_all} requests failed, last: {error}")

    def note_probe(self, name: str, error: str | None) -> None:
        """Count a probe; enough of them in a row move a variant out or back in."""
        standing = self.of[name]
        if error is not None:
            standing.failed_probes, standing.good_probes = standing.failed_probes + 1, 0
            standing.last_error = error
            if standing.failed_probes >= self._policy.failed_probes_out:
                self._take_out(name, f"{standing.failed_probes} probes in a row failed, last: {error}")
            return
        standing.failed_probes, standing.good_probes = 0, standing.good_probes + 1
        standing.generated_at = self._clock()
        if standing.out_reason is not None and standing.good_probes >= self.probes_needed(name):
            standing.out_reason = None
            standing.outcomes.clear()
            self._note_event(name, f"brought back after {standing.good_probes} good probes")

    def probes_needed(self, name: str) -> int:
        """Good probes in a row that bring a variant back: twice as many each time that it was taken out."""
        times = max(1, self.of[name].num_taken_out)
        return int(self._policy.good_probes_back * min(2 ** (times - 1), MAX_LONGER))

    def needs_probe(self, name: str) -> bool:
        """Whether no request says how the variant is."""
        standing = self.of[name]
        oldest = self._clock() - self._policy.probe_period_s
        recent = standing.generated_at is not None and standing.generated_at >= oldest
        return standing.out_reason is not None or not recent

    def generated_within(self, seconds: float) -> bool:
        """Whether some variant generated something so recently."""
        oldest = self._clock() - seconds
        return any(one.generated_at is not None and one.generated_at >= oldest for one in self.of.values())

    def status(self) -> dict[str, Any]:
        """All of it, for people and programs."""
        now = self._clock()
        events = [
            {"seconds_ago": round(now - when, 1), "variant": name, "event": text}
            for when, name, text in self._events
        ]
        return {
            "variants": [self._status(name, standing) for name, standing in self.of.items()],
            "events": events,
        }

    def _take_out(self, name: str, reason: str) -> None:
        """Not the last one that has a share: a bad answer is better than none."""
        standing = self.of[name]
        others = [weight for other, weight in self.weights.items() if other != name]
        if standing.out_reason is None and _any_share(others):
            standing.out_reason = reason
            standing.num_taken_out += 1
            standing.good_probes = 0
            self._note_event(name, f"taken out: {reason}")

    def _note_event(self, name: str, text: str) -> None:
        logger.warning("variant %s %s", name, text)
        self._events.append((self._clock(), name, text))

    def _forget_old(self, standing: Standing, now: float) -> None:
        while standing.outcomes and standing.outcomes[0][0] < now - self._policy.window_s:
            standing.outcomes.popleft()

    def _status(self, name: str, standing: Standing) -> dict[str, Any]:
        self._forget_old(standing, self._clock())
        age = None if standing.generated_at is None else self._clock() - standing.generated_at
        return {
            "name": name,
            "weight": self._weights[name],
            "in": standing.out_reason is None,
            "out_reason": standing.out_reason,
            "times_taken_out": standing.num_taken_out,
            "requests_in_window": len(standing.outcomes),
            "errors_in_window": sum(failed for _, failed in standing.outcomes),
            "failed_probes_in_a_row": standing.failed_probes,
            "seconds_since_generated": None if age is None else round(age, 1),
            "last_error": standing.last_error,
        }


def _any_share(weights: Iterable[float]) -> bool:
    return any(weight > 0 for weight in weights)
