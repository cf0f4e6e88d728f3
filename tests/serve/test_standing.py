"""A variant is out when it misbehaves, back when it generates, and the last one stays."""

import pytest

from foredraft.scheduler.serve.options import StandingPolicy
from foredraft.scheduler.serve.standing import Standings

POLICY = StandingPolicy(
    window_s=10,
    min_requests=4,
    max_error_rate=0.5,
    probe_period_s=1,
    failed_probes_out=3,
    good_probes_back=2,
)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def standings(clock: Clock) -> Standings:
    return Standings({"a": 1.0, "b": 1.0}, POLICY, clock)


def fail(standings: Standings, name: str, count: int) -> None:
    for _ in range(count):
        standings.note_request(name, "status 500")


def test_it_takes_enough_requests_and_more_errors_than_allowed(standings: Standings) -> None:
    fail(standings, "a", 3)
    assert set(standings.weights) == {"a", "b"}  # too few to tell
    for _ in range(4):
        standings.note_request("a", None)
    fail(standings, "a", 1)
    assert set(standings.weights) == {"a", "b"}  # half is allowed
    fail(standings, "a", 1)
    assert set(standings.weights) == {"b"}
    assert "5 of 9" in str(standings.of["a"].out_reason)


def test_errors_outside_the_window_are_forgotten(standings: Standings, clock: Clock) -> None:
    fail(standings, "a", 3)
    clock.now += POLICY.window_s + 1
    fail(standings, "a", 3)
    assert standings.of["a"].out_reason is None


def test_probes_take_out_and_bring_back(standings: Standings) -> None:
    for outcome in ("dead", "dead", None, "dead", "dead"):
        standings.note_probe("a", outcome)
    assert standings.of["a"].out_reason is None  # not in a row
    standings.note_probe("a", "dead")
    assert set(standings.weights) == {"b"}
    for outcome in (None, "dead", None):
        standings.note_probe("a", outcome)
    assert set(standings.weights) == {"b"}
    standings.note_probe("a", None)
    assert set(standings.weights) == {"a", "b"}
    assert [event["event"].partition(":")[0] for event in standings.status()["events"]] == [
        "taken out",
        "brought back after 2 good probes",
    ]


def test_who_was_taken_out_often_must_prove_itself_longer(standings: Standings) -> None:
    needed = []
    for _ in range(3):
        fail(standings, "a", 4)
        count = 0
        while standings.of["a"].out_reason is not None:
            standings.note_probe("a", None)
            count += 1
        needed.append(count)
    assert needed == [2, 4, 8]


def test_a_variant_that_is_brought_back_starts_anew(standings: Standings) -> None:
    fail(standings, "a", 4)
    for _ in range(2):
        standings.note_probe("a", None)
    fail(standings, "a", 3)
    assert standings.of["a"].out_reason is None


def test_the_last_one_with_a_share_stays_in(clock: Clock) -> None:
    standings = Standings({"a": 1.0, "b": 1.0, "shadow": 0.0}, POLICY, clock)
    fail(standings, "a", 4)
    fail(standings, "b", 9)
    for _ in range(5):
        standings.note_probe("b", "dead")
    assert {name for name, weight in standings.weights.items() if weight} == {"b"}
    for _ in range(2):
        standings.note_probe("a", None)
    standings.note_probe("b", "dead")
    assert {name for name, weight in standings.weights.items() if weight} == {"a"}


def test_who_just_generated_needs_no_probe(standings: Standings, clock: Clock) -> None:
    assert standings.needs_probe("a")
    assert not standings.generated_within(60)
    standings.note_request("a", None)
    assert not standings.needs_probe("a")
    assert standings.generated_within(1)
    clock.now += 2
    assert standings.needs_probe("a")
    assert not standings.generated_within(1)
