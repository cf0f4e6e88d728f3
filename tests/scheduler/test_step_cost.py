"""Seconds of a pass: interpolated between the sizes that are learned, and beyond them."""

import numpy as np
import pytest

from foredraft.scheduler.speculation.step_cost import SIZES, StepCost


def test_one_size_is_as_many_sizes() -> None:
    cost = StepCost({1: 1.0, 4: 1.1, 16: 1.6, 64: 4.0})
    cost.observe(1, 5, 1.5)
    for size in (1, 2, 5, 9, 11, 64, 1000, 1024, 1500):
        assert cost.pass_s(1, size) == pytest.approx(float(cost.seconds(1, np.array(float(size)))))


def test_a_machine_that_slows_down_does_so_for_all_sizes() -> None:
    cost = StepCost({1: 1.0, 4: 1.1, 16: 1.6})
    for _ in range(30):
        cost.observe(1, 4, 2.2)
    assert cost.pass_s(1, 4) == pytest.approx(2.2, rel=0.05)
    assert 1.5 < cost.pass_s(1, 1) < 2.3
    assert 2.4 < cost.pass_s(1, 16) < 3.6


def test_batch_sizes_are_learned_apart() -> None:
    cost = StepCost(dict.fromkeys(SIZES, 1.0))
    cost.observe(1, 1, 1.0)
    for _ in range(30):
        cost.observe(16, 32, 3.0)
    assert cost.pass_s(16, 32) == pytest.approx(3.0, rel=0.05)
    assert cost.pass_s(1, 1) == pytest.approx(1.0, rel=0.05)


def test_one_pause_moves_little() -> None:
    cost = StepCost(dict.fromkeys(SIZES, 1.0))
    for _ in range(20):
        cost.observe(1, 1, 1.0)
    cost.observe(1, 1, 50.0)
    assert cost.pass_s(1, 1) < 1.15


def test_nothing_is_known_at_first() -> None:
    cost = StepCost()
    assert not cost.known
    cost.observe(1, 1, 1.0)
    assert cost.known
