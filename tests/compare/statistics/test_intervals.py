import pytest

from foredraft.integration.compare.statistics.intervals import combined_interval


def test_the_mean_of_ratios_lies_between_the_means_of_the_ends() -> None:
    assert combined_interval([(0.5, 2.0), (2.0, 8.0)]) == pytest.approx((1.0, 4.0))
    assert combined_interval([(0.9, 1.1)]) == pytest.approx((0.9, 1.1))


def test_one_unknown_part_leaves_the_whole_unknown() -> None:
    assert combined_interval([(0.9, 1.1), None]) is None
    with pytest.raises(ValueError, match="at least one"):
        combined_interval([])
