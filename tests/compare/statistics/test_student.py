import pytest
from scipy import stats

from foredraft.integration.compare.statistics.student import student_quantile


@pytest.mark.parametrize("freedom", [1, 2, 3, 3.7, 8, 57, 400])
@pytest.mark.parametrize("probability", [0.5, 0.9, 0.975, 0.9999])
def test_quantiles_are_those_of_scipy(freedom: float, probability: float) -> None:
    expected = stats.t.ppf(probability, freedom)
    assert student_quantile(probability, freedom) == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("probability", "freedom"), [(0.4, 3), (1.0, 3), (0.9, 0)])
def test_what_has_no_quantile_is_refused(probability: float, freedom: float) -> None:
    with pytest.raises(ValueError, match="needs"):
        student_quantile(probability, freedom)
