import pytest

from foredraft.integration.compare.statistics.looks import LOOKS, interval_level
from foredraft.integration.compare.statistics.verdict import is_clear, speed_verdict


@pytest.mark.parametrize(
    ("interval", "verdict", "clear"),
    [
        ((1.02, 1.5), "faster", True),
        ((1.005, 1.5), "no difference shown", False),
        ((0.5, 0.98), "slower", True),
        ((0.5, 0.995), "no difference shown", False),
        ((0.97, 1.04), "no difference shown", True),
        ((0.94, 1.04), "no difference shown", False),
        (None, "too few blocks", False),
    ],
)
def test_verdicts(interval: tuple[float, float] | None, verdict: str, clear: bool) -> None:
    assert speed_verdict(interval) == verdict
    assert is_clear(interval) is clear


def test_the_minimal_effect_is_a_choice() -> None:
    assert speed_verdict((1.02, 1.5), min_effect=0.05) == "no difference shown"
    assert speed_verdict((1.005, 1.5), min_effect=0.0) == "faster"


def test_looks_come_in_order_and_end() -> None:
    assert list(LOOKS) == sorted(set(LOOKS))


@pytest.mark.parametrize("num_blocks", range(LOOKS[-1] + 1))
def test_the_look_at_the_end_of_the_budget_is_among_those_counted(num_blocks: int) -> None:
    assert len({look for look in LOOKS if look <= num_blocks} | {num_blocks}) <= len(LOOKS)


def test_the_error_is_shared_between_comparisons_and_looks() -> None:
    assert interval_level(1, 1) == 0.95
    assert 1 - interval_level(24, 8) == pytest.approx(0.05 / 192)
    with pytest.raises(ValueError, match="1 or more"):
        interval_level(0, 8)
