"""The result at one temperature, and what it means."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from foredraft.integration.align.costs import Costs
from foredraft.integration.align.counts import AcceptanceCounts
from foredraft.integration.align.measure import Acceptance
from foredraft.integration.align.predict import (
    MIN_DRAFTED_SHARE,
    best_num_draft_tokens,
    expected_tokens,
    predicted_speedups,
)

ENOUGH_JUDGED = 200
"""First tokens; with fewer, their acceptance is off by more than 0.07 either way."""

ENOUGH_ROUNDS = 8


@dataclass(frozen=True)
class AlignResult:
    """What was measured at one temperature.

    Attributes:
        num_prompts: how many there are; fewer may have been served.
        costs: ``None`` where they could not be measured, or not any more.
    """

    temperature: float
    num_prompts: int
    num_draft_tokens: int
    acceptance: Acceptance
    costs: Costs | None

    @property
    def speedups(self) -> dict[int, float] | None:
        """Predicted speedup per K; ``None`` where nothing allows to predict it."""
        if self.costs is None or self.acceptance.overall.acceptance_rate is None or self.drafts_are_short:
            return None
        return predicted_speedups(self.acceptance.overall.position_acceptance, self.costs)

    @property
    def drafts_are_short(self) -> bool:
        """Whether the proposer often drafts less than allowed."""
        share = self.acceptance.drafted_share
        return share is not None and share < MIN_DRAFTED_SHARE

    @property
    def is_thin(self) -> bool:
        """Whether a prediction rests on little."""
        judged = self.acceptance.overall.judged_per_position[:1]
        rounds = 0 if self.costs is None else self.costs.num_rounds
        return sum(judged) < ENOUGH_JUDGED or rounds < ENOUGH_ROUNDS

    @property
    def conclusion(self) -> str:
        """What to expect, in one sentence."""
        if self.acceptance.overall.acceptance_rate is None:
            return "No data: nothing was drafted."
        if self.drafts_are_short:
            return (
                f"The proposer drafts {self.acceptance.drafted_share:.0%} of what it may, so no speedup is "
                f"predicted from its acceptance; measure it with `foredraft compare`."
            )
        if self.speedups is None or self.costs is None:
            return "The costs were not measured, so no speedup is predicted."
        best = best_num_draft_tokens(self.speedups)
        where = f"at batch size {self.costs.batch_size}"
        if best is None:
            highest = max(self.speedups.values())
            return f"No gain is to be expected {where}: at best {highest:.2f}x the speed of plain decoding."
        return f"Best {where}: num_draft_tokens {best}, predicted speedup {self.speedups[best]:.2f}x."

    def as_json(self) -> dict[str, Any]:
        """The result for ``json.dumps``."""
        speedups = self.speedups
        overall = self.acceptance.overall
        return {
            "temperature": self.temperature,
            "num_prompts": self.num_prompts,
            "complete": self.acceptance.complete,
            "drafted_share": self.acceptance.drafted_share,
            "overall": counts_json(overall),
            "categories": {name: counts_json(each) for name, each in self.acceptance.categories.items()},
            "costs": None if self.costs is None else self._costs_json(self.costs),
            "predictions": None
            if speedups is None
            else [
                {
                    "num_draft_tokens": num_drafted,
                    "expected_tokens": expected_tokens(overall.position_acceptance, num_drafted),
                    "speedup": speedup,
                }
                for num_drafted, speedup in speedups.items()
            ],
            "best_num_draft_tokens": None if speedups is None else best_num_draft_tokens(speedups),
            "thin": self.is_thin,
            "conclusion": self.conclusion,
        }

    def _costs_json(self, costs: Costs) -> dict[str, Any]:
        ratio = costs.draft_step_s / costs.pass_s[0]
        return asdict(costs) | {"draft_step_s": costs.draft_step_s, "draft_step_ratio": ratio}


def counts_json(counts: AcceptanceCounts) -> dict[str, Any]:
    """Counts and rates; a rate without data is ``None``."""
    return asdict(counts) | {
        "acceptance_rate": counts.acceptance_rate,
        "acceptance_length": counts.acceptance_length,
        "position_acceptance": counts.position_acceptance,
        "first_interval": counts.first_interval,
    }
