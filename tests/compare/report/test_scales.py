from itertools import pairwise

import pytest

from foredraft.integration.compare.report.markup import Markup, element
from foredraft.integration.compare.report.scales import linear_scale, place_scale, ratio_scale


def test_a_linear_scale_begins_at_0_and_holds_the_largest() -> None:
    scale = linear_scale([3.0, 87.0], 0, 100)
    assert scale.ticks == (0, 50, 100)
    assert (scale(0), scale(50), scale(100)) == (0, 50, 100)
    assert linear_scale([], 0, 1)(0) == 0


def test_a_ratio_scale_is_symmetric_about_1() -> None:
    scale = ratio_scale([0.5, 2.0], 0, 100)
    assert scale(1.0) - scale(0.5) == pytest.approx(scale(2.0) - scale(1.0))
    assert 1.0 in scale.ticks
    assert all(scale.low <= tick <= scale.high for tick in scale.ticks)


@pytest.mark.parametrize("ratios", [[], [1.0], [0.01], [50.0], [0.98, 1.02], [0.3, 7.0]])
def test_every_ratio_scale_shows_1_and_at_least_one_tick(ratios: list[float]) -> None:
    scale = ratio_scale(ratios, 0, 100)
    assert 0 < scale(1.0) < 100
    assert 1 <= len(scale.ticks) <= 9


@pytest.mark.parametrize("ratios", [[0.98, 1.02], [0.3, 7.0], [1e8], [1e-8, 1e8], [1e-5, 3.0]])
def test_the_labels_of_a_ratio_scale_have_room(ratios: list[float]) -> None:
    scale = ratio_scale(ratios, 8, 332)
    assert 1.0 in scale.ticks
    places = [scale(tick) for tick in scale.ticks]
    assert all(right - left >= 30 for left, right in pairwise(places))


def test_values_outside_are_drawn_at_the_edge() -> None:
    scale = linear_scale([10.0], 0, 100)
    assert (scale(-5), scale(1e9)) == (0, 100)


def test_places_are_ticks_and_one_place_stands_in_the_middle() -> None:
    assert place_scale([1, 8, 1, 64], 0, 100, by_factors=True).ticks == (1, 8, 64)
    assert place_scale([1, 8, 64], 0, 100, by_factors=True)(8) == pytest.approx(50)
    assert place_scale([1, 3, 5], 0, 100, by_factors=False)(3) == pytest.approx(50)
    assert place_scale([4], 0, 100, by_factors=True)(4) == pytest.approx(50)


def test_markup_escapes_text_and_attributes() -> None:
    made = element("p", "a<b", element("i", "&"), class_='x"y', data_value=1.239, missing=None)
    assert made == '<p class="x&quot;y" data-value="1.24">a&lt;b<i>&amp;</i></p>'
    assert isinstance(made, Markup)
    assert element("line", x1=2.0) == '<line x1="2"/>'
