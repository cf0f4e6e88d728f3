import pytest

from foredraft.scheduler import FixedDraftLength


def test_the_length_is_cut_to_the_room() -> None:
    rooms = [9, 5, 4, 1, 0, -3]
    assert FixedDraftLength(5).draft_lengths(rooms) == [5, 5, 4, 1, 0, 0]
    assert FixedDraftLength(0).draft_lengths(rooms) == [0] * 6
    assert FixedDraftLength(5).draft_lengths([]) == []


def test_outcomes_change_nothing() -> None:
    controller = FixedDraftLength(2)
    controller.observe([], step_time_s=0.1)
    assert controller.draft_lengths([7]) == [2]


@pytest.mark.parametrize("bad", [-1, 2.0, "3", True])
def test_a_bad_length_is_refused(bad: object) -> None:
    with pytest.raises(ValueError, match="num_draft_tokens"):
        FixedDraftLength(bad)  # type: ignore[arg-type]
