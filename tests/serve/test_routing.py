"""Keys go to variants by weight, stay there, and move only as far as they must."""

from collections import Counter

import pytest

from foredraft.scheduler.serve.routing import choose_variant

KEYS = [f"user-{number}" for number in range(20_000)]
WEIGHTS = {"a": 1.0, "b": 2.0, "c": 5.0}


def placed(weights: dict[str, float]) -> dict[str, str]:
    return {key: choose_variant(key, weights) for key in KEYS}


def test_shares_are_the_weights() -> None:
    shares = Counter(placed(WEIGHTS).values())
    for name, weight in WEIGHTS.items():
        assert shares[name] / len(KEYS) == pytest.approx(weight / 8, abs=0.015)


def test_a_raised_weight_only_draws_keys_to_itself() -> None:
    before, after = placed(WEIGHTS), placed(WEIGHTS | {"a": 3.0})
    moved = [key for key in KEYS if before[key] != after[key]]
    assert {after[key] for key in moved} == {"a"}
    assert len(moved) / len(KEYS) == pytest.approx(3 / 10 - 1 / 8, abs=0.015)  # no more than it gains


def test_a_variant_that_is_out_gives_its_keys_to_the_others_by_weight() -> None:
    before, after = placed(WEIGHTS), placed({"a": 1.0, "b": 2.0})
    assert all(before[key] == after[key] for key in KEYS if before[key] != "c")
    heirs = Counter(after[key] for key in KEYS if before[key] == "c")
    assert heirs["b"] / heirs.total() == pytest.approx(2 / 3, abs=0.02)


def test_a_weight_of_nothing_gets_nothing() -> None:
    assert set(placed({"a": 0.0, "b": 1e-6}).values()) == {"b"}
    with pytest.raises(ValueError, match="weight"):
        choose_variant("key", {"a": 0.0})


def test_half_a_surrogate_pair_is_a_key_like_others() -> None:
    assert choose_variant("\ud800", {"a": 1.0, "b": 1.0}) in ("a", "b")
