"""How much faster, and how sure: an interval on the ratio of two throughputs, from paired blocks.

Estimator: the 20 % trimmed mean of the logarithms of the block ratios (Tukey and McLaughlin, 1963; Wilcox,
2012). Logarithms, so that A to B and B to A give the same answer. Trimmed, because now and then another
process disturbs one run of a block: a ratio of sums or a plain mean would follow that block, while the median
would throw away a third of the information of the others.

Interval: estimate -+ t * standard error, the error from a bootstrap over blocks, t of Student's law with one
degree of freedom less than blocks are kept. Bootstrap percentiles would be simpler, but the levels needed
here (0.05 shared between all comparisons and looks) lie far out in the tail, where a handful of blocks has no
percentiles, and a studentised bootstrap divides by errors of nearly 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from foredraft.integration.compare.statistics.intervals import Interval
from foredraft.integration.compare.statistics.student import student_quantile

TRIMMED_SHARE = 0.2
MIN_BLOCKS = 5
"""Fewer leave nothing to trim; then there is an estimate but no interval."""

NUM_RESAMPLES = 2000
BOOTSTRAP_SEED = 0


@dataclass(frozen=True)
class RatioEstimate:
    """A ratio with its uncertainty.

    Attributes:
        log_ratio: logarithm of the ratio.
        standard_error: of ``log_ratio``; ``None`` where the blocks do not suffice.
        freedom: degrees of freedom behind the standard error.
    """

    log_ratio: float
    standard_error: float | None
    freedom: float
    num_blocks: int

    @property
    def ratio(self) -> float:
        return math.exp(self.log_ratio)

    def interval(self, level: float) -> Interval | None:
        """Ends of the interval of the ratio that misses the truth with probability ``1 - level``.

        ``None`` without a standard error, and where its upper end would exceed what a float holds.
        """
        if self.standard_error is None:
            return None
        half_width = student_quantile(1 - (1 - level) / 2, self.freedom) * self.standard_error
        if abs(self.log_ratio) + half_width > math.log(1e6):
            return None  # says nothing
        return math.exp(self.log_ratio - half_width), math.exp(self.log_ratio + half_width)


def estimate_ratio(log_ratios: Sequence[float]) -> RatioEstimate:
    """The ratio behind the paired blocks of one comparison.

    Args:
        log_ratios: per block, log(throughput of one / throughput of the other).

    Raises:
        ValueError: no block, or a value that is not finite.
    """
    values = np.sort(np.asarray(log_ratios, dtype=np.float64))
    if values.size == 0 or not np.isfinite(values).all():
        raise ValueError("log_ratios needs at least one value, all finite")
    num_blocks = values.size
    trimmed = _num_trimmed(num_blocks)
    mean = float(values[trimmed : num_blocks - trimmed].mean())
    if num_blocks < MIN_BLOCKS:
        return RatioEstimate(mean, None, 0, num_blocks)
    resampled = _resampling_weights(num_blocks) @ values
    # A resample of n blocks varies like n - 1 independent ones.
    error = float(resampled.std()) * math.sqrt(num_blocks / (num_blocks - 1))
    return RatioEstimate(mean, error, num_blocks - 2 * trimmed - 1, num_blocks)


def combined(estimates: Sequence[RatioEstimate]) -> RatioEstimate:
    """The geometric mean of several independent ratios, each with the same weight.

    The degrees of freedom are those of Welch and Satterthwaite. Comparisons that ended at different looks
    may be combined: how far the interval can be trusted then is simulated in the tests.

    Raises:
        ValueError: no estimate.
    """
    if not estimates:
        raise ValueError("estimates needs at least one")
    count = len(estimates)
    mean = sum(one.log_ratio for one in estimates) / count
    num_blocks = sum(one.num_blocks for one in estimates)
    variances = [(one.standard_error / count) ** 2 for one in estimates if one.standard_error is not None]
    if len(variances) < count:
        return RatioEstimate(mean, None, 0, num_blocks)
    total = sum(variances)
    spread = sum(part**2 / one.freedom for part, one in zip(variances, estimates, strict=True))
    freedom = total**2 / spread if spread else min(one.freedom for one in estimates)
    return RatioEstimate(mean, math.sqrt(total), freedom, num_blocks)


def _num_trimmed(num_blocks: int) -> int:
    """Blocks left out on each side."""
    return int(TRIMMED_SHARE * num_blocks)


@lru_cache(maxsize=64)
def _resampling_weights(num_blocks: int) -> NDArray[np.float64]:
    """Weights [resamples, blocks] of the sorted blocks in the trimmed mean of each resample.

    They depend on how often a block was drawn, not on its value: drawn once, and used for every comparison
    of so many blocks. A resample sorted is each block as often as drawn, in order; what lies within the
    first or last ``trimmed`` places of it weighs nothing.
    """
    trimmed = _num_trimmed(num_blocks)
    random = np.random.default_rng(BOOTSTRAP_SEED)
    shares = np.full(num_blocks, 1 / num_blocks)
    drawn = random.multinomial(num_blocks, shares, size=NUM_RESAMPLES)
    ends = np.clip(drawn.cumsum(axis=1), trimmed, num_blocks - trimmed)
    kept = np.diff(ends, axis=1, prepend=trimmed)
    return np.asarray(kept / (num_blocks - 2 * trimmed), dtype=np.float64)
