"""Drafts of the n-gram proposer, row by row and over a request's life."""

import random
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft.proposers import DraftContext, Outcome
from foredraft.proposers.ngram import NgramProposer
from foredraft.verifier import SamplingBatch

DraftOf = Callable[..., list[list[int]]]
GREEDY = SamplingBatch(torch.zeros(1), request_keys=torch.zeros(1), block_starts=torch.zeros(1))


def naive_draft(tokens: Sequence[int], min_n: int, max_n: int, limit: int) -> list[int]:
    """Token by token: copy the one after the match, then move match and text on together."""
    text = list(tokens)
    for n in range(max_n, min_n - 1, -1):
        for end in range(len(tokens) - 1, n - 1, -1):
            if text[end - n : end] == text[len(text) - n :]:
                for offset in range(limit):
                    text.append(text[end + offset])
                return text[len(tokens) :]
    return []


@given(st.lists(st.integers(0, 3), max_size=30), st.integers(1, 3), st.integers(0, 3), st.integers(0, 9))
def test_drafts_what_followed_the_match(tokens: list[int], min_n: int, extra: int, limit: int) -> None:
    proposer = NgramProposer(min_n, min_n + extra)
    draft = proposer.propose(DraftContext(["a"], [tokens], [limit], GREEDY))
    expected = naive_draft(tokens, min_n, min_n + extra, limit)
    assert draft.token_ids.tolist() == [expected]
    assert draft.lengths.tolist() == [len(expected)]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 60])
def test_repetition_is_drafted_on(draft_of: DraftOf, limit: int) -> None:
    rows = {"same": [7] * 50, "period": [1, 2, 3] * 5, "late": [9, 8, 9, 8, 9]}
    drafts = draft_of(NgramProposer(min_n=2, max_n=4), rows, [limit] * 3)
    assert drafts == [[7] * limit, ([1, 2, 3] * 20)[:limit], ([8, 9] * 30)[:limit]]


def test_the_longest_match_wins_then_the_latest(draft_of: DraftOf) -> None:
    by_length = [1, 2, 3, 40, 9, 3, 50, 1, 2, 3]
    by_age = [2, 3, 40, 2, 3, 50, 2, 3]
    drafts = draft_of(NgramProposer(min_n=1, max_n=3), {"length": by_length, "age": by_age}, [1, 1])
    assert drafts == [[40], [50]]


@pytest.mark.parametrize("tokens", [[], [5], [1, 2, 3, 4], [1, 2, 3, 1]])
def test_no_match_drafts_nothing(draft_of: DraftOf, tokens: list[int]) -> None:
    assert draft_of(NgramProposer(min_n=2, max_n=3), {"a": tokens}, [5]) == [[]]


def test_ragged_rows_equal_each_row_alone(draft_of: DraftOf) -> None:
    """Drafts of the active rows were once written back by their place among the active ones."""
    rows = {f"r{row}": [row, 9, row, row + 1, 9, row] * 3 for row in range(5)}
    limits = [0, 3, 0, 5, 1]
    batched = draft_of(NgramProposer(1, 3), rows, limits)
    alone = [
        draft_of(NgramProposer(1, 3), {name: tokens}, [limit])[0]
        for (name, tokens), limit in zip(rows.items(), limits, strict=True)
    ]
    assert batched == alone
    assert [len(row) for row in batched] == limits


def test_an_empty_batch_is_an_empty_draft(draft_of: DraftOf) -> None:
    assert draft_of(NgramProposer(), {}, []) == []


def test_a_row_without_room_is_not_indexed_and_catches_up_later(draft_of: DraftOf) -> None:
    proposer = NgramProposer(1, 2)
    assert draft_of(proposer, {"a": [1, 2, 1]}, [0]) == [[]]
    assert not proposer._indexes
    assert draft_of(proposer, {"a": [1, 2, 1, 3, 1, 3, 1]}, [2]) == [[3, 1]]


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5])
def test_never_drafts_more_than_the_room(draft_of: DraftOf, limit: int) -> None:
    """Drafts once ran past the model's length limit."""
    assert [len(row) for row in draft_of(NgramProposer(), {"a": [4] * 20}, [limit])] == [limit]


@pytest.mark.parametrize("max_tokens", [10, 64, 512])
@pytest.mark.parametrize("min_n", [1, 2, 8])
def test_long_generations_draft_correctly_throughout(draft_of: DraftOf, max_tokens: int, min_n: int) -> None:
    """Short runs hid faults: a run of 10 tokens passed, one of 64 failed."""
    rng = random.Random(max_tokens * 10 + min_n)
    tokens = [rng.randrange(4) for _ in range(30)]
    proposer = NgramProposer(min_n, 8)
    while len(tokens) < 30 + max_tokens:
        assert draft_of(proposer, {"a": tokens}, [5]) == [naive_draft(tokens, min_n, 8, 5)]
        tokens.extend(rng.randrange(4) for _ in range(rng.randint(1, 6)))


@settings(max_examples=30)
@given(st.lists(st.sampled_from(["grow", "shrink", "replace", "release"]), max_size=12), st.integers(0, 999))
def test_histories_may_be_cut_or_replaced_at_any_time(events: list[str], seed: int) -> None:
    rng = random.Random(seed)
    # Wide enough that a replaced history never looks like the old one at its indexed end.
    tokens = [rng.randrange(30) for _ in range(20)]
    proposer = NgramProposer(1, 3)
    for event in events:
        if event == "grow":
            tokens = tokens + [rng.randrange(30) for _ in range(rng.randint(1, 300))]
        elif event == "shrink":
            tokens = tokens[: rng.randint(1, len(tokens))]
        elif event == "replace":
            tokens = [rng.randrange(30) for _ in range(len(tokens) + rng.randint(0, 9))]
        else:
            proposer.release("a", "preempted")
        draft = proposer.propose(DraftContext(["a"], [tokens], [4], GREEDY))
        assert draft.token_ids.tolist() == [naive_draft(tokens, 1, 3, 4)]


def outcome(request_id: str, block_start: int, committed_ids: tuple[int, ...]) -> Outcome:
    return Outcome(request_id, block_start, 0, 0, 0, committed_ids)


@pytest.mark.parametrize("reason", ["finished", "aborted", "preempted"])
@pytest.mark.parametrize("shared_store_tokens", [0, 100])
def test_release_leaves_nothing_of_the_request(
    draft_of: DraftOf, reason: str, shared_store_tokens: int
) -> None:
    proposer = NgramProposer(1, 2, shared_store_tokens)
    draft_of(proposer, {"a": [1, 2, 1], "b": [5, 5]}, [2, 2])
    for _ in range(2):
        proposer.release("a", reason)  # type: ignore[arg-type]
    proposer.release("never seen", reason)  # type: ignore[arg-type]
    proposer.observe([outcome("a", 3, (4,))])  # late: must not bring the request back
    proposer.release("b", reason)  # type: ignore[arg-type]
    assert len(proposer._indexes) == 0
    assert len(proposer._outputs) == 0


def test_a_reused_request_id_starts_anew(draft_of: DraftOf) -> None:
    proposer = NgramProposer(1, 1)
    draft_of(proposer, {"a": [1, 2, 3, 4]}, [2])
    proposer.release("a", "finished")
    assert draft_of(proposer, {"a": [8, 1]}, [2]) == [[]]


def test_short_matches_draft_less(draft_of: Callable[..., list[list[int]]]) -> None:
    """A match of n tokens drafts 1 + growth * (n - 1); one of max_n as many as allowed."""
    for matched, drafted in ((1, 1), (2, 3), (3, 5), (4, 8)):
        suffix = list(range(100, 100 + matched))
        tokens = [*suffix, *range(1, 20), 50, *suffix]
        proposer = NgramProposer(1, 4, draft_growth=2)
        assert draft_of(proposer, {"a": tokens}, [8]) == [list(range(1, 1 + drafted))]


def test_draft_growth_out_of_range() -> None:
    with pytest.raises(ValueError, match="draft_growth"):
        NgramProposer(1, 4, draft_growth=-1)
