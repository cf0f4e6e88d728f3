"""From acceptance and costs to the speedup that drafting K tokens would bring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from foredraft.integration.align.costs import Costs

MIN_GAIN = 1.02
"""Below this a predicted speedup is within what the measured times are off by."""

MIN_DRAFTED_SHARE = 0.75
"""The prediction takes every draft to be as long as allowed; below this share it would be too high."""


def expected_tokens(position_acceptance: Sequence[float | None], num_draft_tokens: int) -> float:
    """Tokens that one target pass yields: 1 + a_1 + a_1 a_2 + ... + a_1 ... a_K (Leviathan et al., 2023).

    Args:
        position_acceptance: of each place, given that all before it were accepted; ``None``, or missing =
            never judged, which counts as never accepted.
    """
    tokens = reached = 1.0
    for position in range(num_draft_tokens):
        known = position < len(position_acceptance)
        reached *= (position_acceptance[position] if known else None) or 0.0
        tokens += reached
    return tokens


def predicted_speedups(position_acceptance: Sequence[float | None], costs: Costs) -> dict[int, float]:
    """Speedup over plain decoding for each K: expected tokens over the cost of a step.

    The cost is T_verify(K+1)/T_1 + K T_draft/T_1 + overhead, measured as a whole: steps that draft K
    tokens against those that draft none. It holds at the batch size and context of ``costs``.
    """
    return {
        num_drafted: expected_tokens(position_acceptance, num_drafted) / costs.step_ratios[num_drafted]
        for num_drafted in range(1, costs.num_draft_tokens + 1)
    }


def best_num_draft_tokens(speedups: Mapping[int, float]) -> int | None:
    """The K of the largest speedup; ``None`` if none is a gain."""
    best = max(speedups, key=lambda num_drafted: speedups[num_drafted])
    return best if speedups[best] >= MIN_GAIN else None
