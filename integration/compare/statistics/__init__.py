"""From paired blocks to a verdict: interval on the ratio, several comparisons, repeated looks."""

from foredraft.integration.compare.statistics.estimate import (
    MIN_BLOCKS,
    RatioEstimate,
    combine,
    estimate_ratio,
)
from foredraft.integration.compare.statistics.looks import LOOKS, interval_level, next_look
from foredraft.integration.compare.statistics.verdict import Verdict, is_clear, speed_verdict

__all__ = [
    "LOOKS",
    "MIN_BLOCKS",
    "RatioEstimate",
    "Verdict",
    "combine",
    "estimate_ratio",
    "interval_level",
    "is_clear",
    "next_look",
    "speed_verdict",
]
