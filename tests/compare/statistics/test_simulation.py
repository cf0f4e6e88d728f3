"""Whole comparisons on simulated blocks: noise as on a shared CPU, and what the rule makes of it.

Block ratios scatter by 8 %, and one block in twenty is disturbed on one side by a factor of 1.2 to 2.5.
Numbers of repetitions and limits are such that a correct rule fails with less than 1e-6, by the binomial law.
"""

import math
from collections import Counter

import numpy as np
import pytest

from foredraft.integration.compare.statistics.estimate import RatioEstimate, combined, estimate_ratio
from foredraft.integration.compare.statistics.looks import LOOKS, interval_level
from foredraft.integration.compare.statistics.verdict import is_clear, speed_verdict

SCATTER = 0.08


def simulated(random: np.random.Generator, log_ratio: float, num_blocks: int = LOOKS[-1]) -> list[float]:
    values = random.normal(log_ratio, SCATTER, num_blocks)
    disturbed = random.random(num_blocks) < 0.05
    factors = random.choice([-1, 1], num_blocks) * np.log(random.uniform(1.2, 2.5, num_blocks))
    return [float(value) for value in values + disturbed * factors]


def outcome(blocks: list[float], num_comparisons: int) -> tuple[str, bool, int, bool]:
    """Verdict, whether the interval at the end covers 0.9, blocks used, whether every interval covers 1."""
    level = interval_level(num_comparisons, len(LOOKS))
    always_covers = True
    for look in LOOKS:
        interval = estimate_ratio(blocks[:look]).interval(level)
        always_covers &= interval is None or interval[0] <= 1 <= interval[1]
        if is_clear(interval):
            break
    covers = interval is not None and interval[0] <= 0.9 <= interval[1]
    return speed_verdict(interval), covers, look, always_covers


def test_equal_configurations_are_not_told_apart() -> None:
    """5 % of the runs may call a difference, over all looks; 600 runs, so 30 expected at most."""
    random = np.random.default_rng(11)
    outcomes = [outcome(simulated(random, 0.0), 1) for _ in range(600)]
    verdicts = Counter(verdict for verdict, *_ in outcomes)
    assert verdicts["no difference shown"] >= 540
    assert sum(covers for *_, covers in outcomes) >= 540


def test_a_family_of_equal_comparisons_errs_no_more_often() -> None:
    """24 comparisons in each of 60 runs: a wrong call somewhere expected in 3 runs at most."""
    random = np.random.default_rng(12)
    runs = [[outcome(simulated(random, 0.0), 24)[0] for _ in range(24)] for _ in range(60)]
    wrong = sum(set(verdicts) != {"no difference shown"} for verdicts in runs)
    assert wrong <= 14


@pytest.mark.parametrize("num_comparisons", [1, 24])
def test_a_slowdown_of_ten_percent_is_found(num_comparisons: int) -> None:
    random = np.random.default_rng(13)
    outcomes = [outcome(simulated(random, math.log(0.9)), num_comparisons) for _ in range(200)]
    assert sum(verdict == "slower" for verdict, *_ in outcomes) >= 195
    assert sum(covers for _, covers, *_ in outcomes) >= 180
    blocks = sorted(used for *_, used, _ in outcomes)
    assert blocks[len(blocks) // 2] <= 28, "half of the runs need no more"


@pytest.mark.parametrize("num_blocks", [6, 13, 42])
def test_a_single_interval_covers_as_often_as_it_says(num_blocks: int) -> None:
    """2000 intervals of 95 %; five standard deviations of the binomial law are 49."""
    random = np.random.default_rng(14)
    intervals = [
        estimate_ratio(list(random.normal(0.2, SCATTER, num_blocks))).interval(0.95) for _ in range(2000)
    ]
    covered = sum(one is not None and one[0] <= math.exp(0.2) <= one[1] for one in intervals)
    assert covered >= 1900 - 49
    assert covered <= 1995, "an interval that always covers is too wide"


def test_repeated_looks_at_the_plain_level_would_err() -> None:
    """The negative control: 95 % at each look, as if it were the only one."""
    random = np.random.default_rng(15)
    wrong = 0
    for _ in range(400):
        blocks = list(random.normal(0, SCATTER, LOOKS[-1]))
        intervals = [estimate_ratio(blocks[:look]).interval(0.95) for look in LOOKS]
        wrong += any(one is not None and not one[0] <= 1 <= one[1] for one in intervals)
    assert wrong > 40


def ended(blocks: list[float], level: float) -> RatioEstimate:
    """The estimate at the look at which the comparison ends."""
    for look in LOOKS:
        estimate = estimate_ratio(blocks[:look])
        if is_clear(estimate.interval(level)):
            break
    return estimate


@pytest.mark.parametrize(
    "log_ratios", [(0.0, 0.0, 0.0, 0.0), (0.7, 0.2, 0.0, -0.2), (0.06, 0.06, 0.06, 0.06)]
)
def test_the_whole_of_comparisons_that_ended_on_their_own_is_covered(log_ratios: tuple[float, ...]) -> None:
    """Each ends when it is clear, which pulls it outwards; 400 runs, at most 20 expected to miss."""
    random = np.random.default_rng(16)
    level = interval_level(len(log_ratios) + 1, len(LOOKS))
    truth = math.exp(sum(log_ratios) / len(log_ratios))
    covered = 0
    for _ in range(400):
        whole = combined([ended(simulated(random, log_ratio), level) for log_ratio in log_ratios])
        interval = whole.interval(level)
        covered += interval is not None and interval[0] <= truth <= interval[1]
    assert covered >= 380
