import pytest

from foredraft.scheduler.speculation import (
    NO_LIMIT,
    Choice,
    DraftBatch,
    FixedDraftLength,
    Member,
    StepReport,
)


def lengths(controller: FixedDraftLength, *rooms: int, own: int = NO_LIMIT) -> list[int]:
    names = [str(place) for place in range(len(rooms))]
    return controller.choose(DraftBatch(names, rooms, [9] * len(rooms), [own] * len(rooms))).lengths


def test_the_length_is_cut_to_the_room() -> None:
    rooms = (9, 5, 4, 1, 0, -3)
    assert lengths(FixedDraftLength(5), *rooms) == [5, 5, 4, 1, 0, 0]
    assert lengths(FixedDraftLength(0), *rooms) == [0] * 6
    assert lengths(FixedDraftLength(5)) == []


@pytest.mark.parametrize(("own", "expected"), [(0, 0), (2, 2), (9, 5), (NO_LIMIT, 5)])
def test_the_length_is_cut_to_the_limit_of_the_request(own: int, expected: int) -> None:
    assert lengths(FixedDraftLength(5), 20, own=own) == [expected]


def test_outcomes_change_nothing() -> None:
    controller = FixedDraftLength(2)
    controller.observe(StepReport([], Choice([]), [0.0], 0.1, 0.1, 1))
    controller.release("never seen")
    assert lengths(controller, 7) == [2]


@pytest.mark.parametrize("bad", [-1, 2.0, "3", True])
def test_a_bad_length_is_refused(bad: object) -> None:
    with pytest.raises(ValueError, match="num_draft_tokens"):
        FixedDraftLength(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [0, -1, 2.0, "3", True])
def test_a_bad_largest_length_is_refused(bad: object) -> None:
    with pytest.raises(ValueError, match="max_draft_tokens"):
        Member("x", bad)  # type: ignore[arg-type]
