import pytest

from foredraft.scheduler import AdaptiveDraftLength, DraftRequest, FixedDraftLength, StepReport


def requests(*rooms: int, own: int | None = None) -> list[DraftRequest]:
    return [DraftRequest(str(place), room, max_draft_tokens=own) for place, room in enumerate(rooms)]


def test_the_length_is_cut_to_the_room() -> None:
    rooms = (9, 5, 4, 1, 0, -3)
    assert FixedDraftLength(5).draft_lengths(requests(*rooms)) == [5, 5, 4, 1, 0, 0]
    assert FixedDraftLength(0).draft_lengths(requests(*rooms)) == [0] * 6
    assert FixedDraftLength(5).draft_lengths([]) == []


@pytest.mark.parametrize(("own", "expected"), [(0, 0), (2, 2), (9, 5), (None, 5)])
def test_the_length_is_cut_to_the_limit_of_the_request(own: int | None, expected: int) -> None:
    assert FixedDraftLength(5).draft_lengths(requests(20, own=own)) == [expected]


def test_outcomes_change_nothing() -> None:
    controller = FixedDraftLength(2)
    controller.observe(StepReport([], [], 0.0, 0.1, 0.1, 1))
    controller.release("never seen")
    assert controller.draft_lengths(requests(7)) == [2]


@pytest.mark.parametrize("bad", [-1, 2.0, "3", True])
def test_a_bad_length_is_refused(bad: object) -> None:
    with pytest.raises(ValueError, match="num_draft_tokens"):
        FixedDraftLength(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [0, -1, 2.0, "3", True])
def test_a_bad_largest_length_is_refused(bad: object) -> None:
    with pytest.raises(ValueError, match="max_draft_tokens"):
        AdaptiveDraftLength(bad)  # type: ignore[arg-type]
