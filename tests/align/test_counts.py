"""Counting acceptance from outcomes."""

from collections.abc import Callable

import pytest

from foredraft.integration.align.counts import AcceptanceCounts, total, wilson_interval
from foredraft.proposers import Outcome

MakeOutcome = Callable[..., Outcome]


def counted(*outcomes: Outcome) -> AcceptanceCounts:
    counts = AcceptanceCounts()
    for outcome in outcomes:
        counts.add(outcome)
    return counts


def test_each_position_is_judged_only_behind_accepted_ones(make_outcome: MakeOutcome) -> None:
    counts = counted(
        make_outcome(3, 0, 1), make_outcome(3, 1, 2), make_outcome(3, 3, 4), make_outcome(2, 2, 3)
    )
    assert counts.judged_per_position == [4, 3, 1]
    assert counts.accepted_per_position == [3, 2, 1]
    assert counts.position_acceptance == [3 / 4, 2 / 3, 1.0]
    assert counts.acceptance_rate == 6 / 11
    assert counts.acceptance_length == 10 / 4


def test_full_acceptance_is_exactly_one(make_outcome: MakeOutcome) -> None:
    """Reported fault: the bonus token counted as accepted, and rates rose above 1."""
    counts = counted(make_outcome(4, 4, 5), make_outcome(4, 4, 5))
    assert counts.acceptance_rate == 1.0
    assert counts.position_acceptance == [1.0] * 4
    assert counts.acceptance_length == 5.0


def test_without_drafts_there_are_no_rates(make_outcome: MakeOutcome) -> None:
    """Reported fault: nan, or a division by zero."""
    fresh, empty = AcceptanceCounts(), counted(make_outcome(0, 0, 1), make_outcome(0, 0, 1))
    for counts in (fresh, empty):
        assert counts.acceptance_rate is None
        assert counts.position_acceptance == []
        assert counts.first_interval is None
    assert fresh.acceptance_length is None
    assert empty.acceptance_length == 1.0


def test_short_drafts_count_as_long_as_they_are(make_outcome: MakeOutcome) -> None:
    """Reported fault: the drafted number was rebuilt from the configured maximum."""
    counts = counted(
        make_outcome(4, 2, 3), make_outcome(0, 0, 1), make_outcome(1, 1, 2), make_outcome(0, 0, 1)
    )
    assert counts.num_drafted_tokens == 5
    assert counts.acceptance_rate == 3 / 5


def test_an_end_inside_the_draft_is_no_rejection(make_outcome: MakeOutcome) -> None:
    """Two accepted tokens, the request ends there: nobody judged the third."""
    counts = counted(make_outcome(4, 2, 2))
    assert counts.judged_per_position == [1, 1]
    assert counts.position_acceptance == [1.0, 1.0]


def test_totals_of_different_lengths(make_outcome: MakeOutcome) -> None:
    parts = [counted(make_outcome(1, 1, 2)), counted(make_outcome(3, 2, 3)), AcceptanceCounts(num_prompts=1)]
    both = total(parts)
    assert both.judged_per_position == [2, 1, 1]
    assert both.accepted_per_position == [2, 1, 0]
    assert (both.num_prompts, both.num_steps, both.num_emitted_tokens) == (1, 2, 5)
    assert (both.num_drafted_tokens, both.num_accepted_tokens) == (4, 3)
    assert parts[0].judged_per_position == [1], "the parts stay as they are"


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634), (420, 1000, 0.3898, 0.4509)],
)
def test_wilson_interval(successes: int, trials: int, low: float, high: float) -> None:
    """Against R's prop.test(..., correct=FALSE)."""
    assert wilson_interval(successes, trials) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


@pytest.mark.parametrize(("successes", "trials"), [(0, 0), (3, 2), (-1, 2)])
def test_wilson_interval_needs_trials(successes: int, trials: int) -> None:
    with pytest.raises(ValueError, match="trials"):
        wilson_interval(successes, trials)
