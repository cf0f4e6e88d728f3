"""Waiting before restarts: longer each time, not for ever, forgiven after a good while."""

import pytest

from foredraft.scheduler.cluster.backoff import Backoff, RestartPolicy


def test_waits_double_up_to_the_longest_and_end() -> None:
    backoff = Backoff(RestartPolicy(first_wait_s=1, longest_wait_s=5, max_restarts=4, stable_s=100))
    assert [backoff.wait_before_restart(0) for _ in range(5)] == [1, 2, 4, 5, None]


def test_a_worker_that_was_well_starts_anew() -> None:
    backoff = Backoff(RestartPolicy(first_wait_s=1, longest_wait_s=60, max_restarts=2, stable_s=100))
    assert [backoff.wait_before_restart(well) for well in (0, 99, 100, 0, 0)] == [1, 2, 1, 2, None]


def test_no_restarts_are_no_restarts() -> None:
    assert Backoff(RestartPolicy(max_restarts=0)).wait_before_restart(1e9) is None


@pytest.mark.parametrize(
    "field", [{"check_every_s": 0}, {"stable_s": -1}, {"longest_wait_s": 0.5}, {"max_restarts": -1}]
)
def test_fields_that_cannot_be_are_named(field: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(field))):
        RestartPolicy(**field)
