import math

import numpy as np
import pytest
from scipy import stats

from foredraft.integration.compare.statistics.estimate import RatioEstimate, combined, estimate_ratio

NINE = [0.01, -0.02, 0.03, 0.0, 0.05, -0.04, 0.02, 0.1, -0.01]


def test_the_estimate_is_the_trimmed_mean_of_logarithms() -> None:
    ratio = estimate_ratio(NINE)
    assert ratio.log_ratio == pytest.approx(stats.trim_mean(NINE, 0.2))
    assert ratio.ratio == pytest.approx(math.exp(ratio.log_ratio))
    assert (ratio.num_blocks, ratio.freedom) == (9, 6)


def test_the_standard_error_is_that_of_resampled_blocks() -> None:
    """The weights stand for drawing blocks with replacement, sorting and trimming: here it is done."""
    random = np.random.default_rng(1)
    resamples = random.choice(NINE, size=(200_000, 9))
    expected = stats.trim_mean(resamples, 0.2, axis=1).std() * math.sqrt(9 / 8)
    assert estimate_ratio(NINE).standard_error == pytest.approx(expected, rel=0.05)


def test_swapping_the_sides_inverts_ratio_and_interval() -> None:
    one, other = estimate_ratio(NINE), estimate_ratio([-value for value in NINE])
    low, high = one.interval(0.95) or (0, 0)
    assert other.ratio == pytest.approx(1 / one.ratio)
    assert other.interval(0.95) == pytest.approx((1 / high, 1 / low), rel=0.01)


def test_one_disturbed_block_moves_little() -> None:
    steady = [*NINE[:-1], 0.0]
    disturbed = [*NINE[:-1], math.log(10)]
    assert abs(estimate_ratio(disturbed).log_ratio - estimate_ratio(steady).log_ratio) < 0.02


def test_too_few_blocks_have_no_interval() -> None:
    assert estimate_ratio([0.1]).ratio == pytest.approx(math.exp(0.1))
    assert estimate_ratio([0.1] * 4).interval(0.95) is None
    assert estimate_ratio([0.1] * 5).interval(0.95) == pytest.approx((math.exp(0.1),) * 2)


def test_an_interval_that_says_nothing_is_none() -> None:
    assert estimate_ratio([0, 5, -5, 3, -3]).interval(0.9999) is None


@pytest.mark.parametrize("values", [[], [math.nan] * 6, [math.inf, 0, 0, 0, 0]])
def test_what_is_no_ratio_is_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="log_ratios"):
        estimate_ratio(values)


def test_combined_ratios_weigh_equally() -> None:
    both = combined([RatioEstimate(0.2, 0.03, 4, 6), RatioEstimate(0.4, 0.04, 60, 90)])
    assert both.log_ratio == pytest.approx(0.3)
    assert both.standard_error == pytest.approx(0.025)
    # Welch and Satterthwaite by hand; the factors of a quarter cancel.
    assert both.freedom == pytest.approx(0.0025**2 / (0.0009**2 / 4 + 0.0016**2 / 60))
    assert both.num_blocks == 96


def test_a_combination_without_an_error_of_one_part_has_none() -> None:
    parts = [RatioEstimate(0.2, None, 0, 3), RatioEstimate(0.4, 0.1, 4, 6)]
    assert combined(parts).interval(0.95) is None
    with pytest.raises(ValueError, match="estimates"):
        combined([])


def test_ratios_without_scatter_combine() -> None:
    exact = RatioEstimate(math.log(2), 0.0, 3, 6)
    assert combined([exact, exact]).interval(0.99) == pytest.approx((2.0, 2.0))
