"""Predicted speedups, from numbers that can be worked out by hand."""

from collections.abc import Callable

import pytest

from foredraft.integration.align.costs import Costs
from foredraft.integration.align.predict import best_num_draft_tokens, expected_tokens, predicted_speedups

MakeCosts = Callable[[list[float]], Costs]


def test_expected_tokens_multiply_up() -> None:
    assert expected_tokens([0.5, 0.4, 0.25], 3) == pytest.approx(1 + 0.5 + 0.2 + 0.05)
    assert expected_tokens([0.5, 0.4, 0.25], 1) == 1.5
    assert expected_tokens([0.8] * 5, 5) == pytest.approx((1 - 0.8**6) / (1 - 0.8))


@pytest.mark.parametrize("acceptance", [[0.5], [0.5, None], [0.5, None, 0.9], [0.5, 0.0]])
def test_places_never_judged_count_as_never_accepted(acceptance: list[float | None]) -> None:
    assert expected_tokens(acceptance, 3) == 1.5


def test_speedup_is_tokens_over_cost(make_costs: MakeCosts) -> None:
    speedups = predicted_speedups([0.6, 0.5], make_costs([1.0, 1.2, 1.5]))
    assert speedups == {1: pytest.approx(1.6 / 1.2), 2: pytest.approx(1.9 / 1.5)}
    assert best_num_draft_tokens(speedups) == 1


def test_a_draft_that_costs_a_third_of_the_target_and_is_right_half_the_time(make_costs: MakeCosts) -> None:
    """Reported fault: users tried k = 3, 5, 10 and got slower each time; no tool had told them."""
    speedups = predicted_speedups([0.5] * 10, make_costs([1 + number / 3 for number in range(11)]))
    assert [speedups[number] < 1 for number in (3, 5, 10)] == [True] * 3
    assert speedups[3] > speedups[5] > speedups[10]


def test_no_gain_names_no_length() -> None:
    assert best_num_draft_tokens({1: 0.9, 2: 0.8}) is None
    assert best_num_draft_tokens({1: 1.01, 2: 0.8}) is None, "within what the times are off by"
    assert best_num_draft_tokens({1: 1.1, 2: 1.3, 3: 1.2}) == 2


def test_a_drafting_step_is_the_slope(make_costs: MakeCosts) -> None:
    costs = make_costs([1.0, 1.1, 1.2, 1.3])
    assert costs.num_draft_tokens == 3
    assert costs.draft_step_s == pytest.approx(0.001)
    assert make_costs([1.0, 1.1]).draft_step_s == pytest.approx(0.001)
