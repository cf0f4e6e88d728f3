"""Past outputs as a source of drafts: what goes in, what must not, and that it stays bounded."""

import random
from collections import deque
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.proposers import Outcome, ngram_keys
from foredraft.proposers.ngram import NgramProposer
from foredraft.proposers.ngram_keys import GramSizes
from foredraft.proposers.shared_store import SharedStore

DraftOf = Callable[..., list[list[int]]]


def serve(
    proposer: NgramProposer,
    draft_of: DraftOf,
    request_id: str,
    prompt: Sequence[int],
    blocks: Sequence[tuple[int, ...]],
    reason: str = "finished",
) -> None:
    tokens = list(prompt)
    for block in blocks:
        draft_of(proposer, {request_id: tokens}, [0])
        proposer.observe([Outcome(request_id, len(tokens), 0, 0, 0, block)])
        tokens.extend(block)
    proposer.release(request_id, reason)  # type: ignore[arg-type]


def test_a_finished_output_is_drafted_for_another_request(draft_of: DraftOf) -> None:
    proposer = NgramProposer(2, 3, shared_store_tokens=100)
    serve(proposer, draft_of, "old", [1, 2], [(10,), (11, 12), (13, 14)])
    assert draft_of(proposer, {"new": [7, 10, 11]}, [9]) == [[12, 13, 14]]


def test_the_requests_own_history_comes_first(draft_of: DraftOf) -> None:
    proposer = NgramProposer(1, 3, shared_store_tokens=100)
    serve(proposer, draft_of, "old", [1], [(10, 11, 12, 13)])
    assert draft_of(proposer, {"new": [11, 55, 10, 11]}, [2]) == [[55, 10]]


@pytest.mark.parametrize("reason", ["aborted", "preempted"])
def test_only_finished_outputs_are_stored(draft_of: DraftOf, reason: str) -> None:
    proposer = NgramProposer(1, 2, shared_store_tokens=100)
    serve(proposer, draft_of, "old", [1], [(10, 11, 12)], reason)
    assert draft_of(proposer, {"new": [10]}, [2]) == [[]]


def test_prompts_and_stale_outcomes_are_not_stored(draft_of: DraftOf) -> None:
    proposer = NgramProposer(1, 2, shared_store_tokens=100)
    draft_of(proposer, {"old": [1, 2, 3]}, [0])
    proposer.observe([Outcome("old", 2, 0, 0, 0, (20, 21, 22))])
    proposer.observe([Outcome("old", 3, 0, 0, 0, (10, 11, 12))])
    proposer.observe([Outcome("old", 3, 0, 0, 0, (30, 31, 32))])
    proposer.release("old", "finished")
    rows = {"prompt": [1], "stale": [20], "repeated": [30], "output": [10]}
    assert draft_of(proposer, rows, [2] * 4) == [[], [], [], [11, 12]]


def test_a_missed_outcome_never_joins_what_lay_around_it(draft_of: DraftOf) -> None:
    proposer = NgramProposer(1, 2, shared_store_tokens=100)
    draft_of(proposer, {"old": [1]}, [0])
    proposer.observe([Outcome("old", 1, 0, 0, 0, (10, 11))])
    draft_of(proposer, {"old": [1, 10, 11, 12, 13]}, [0])
    proposer.observe([Outcome("old", 5, 0, 0, 0, (14, 15))])
    proposer.release("old", "finished")
    assert draft_of(proposer, {"x": [11], "y": [14]}, [3, 3]) == [[], [15]]


def test_matches_and_drafts_stay_inside_one_output() -> None:
    store = SharedStore(100, GramSizes(2, 3))
    store.add([1, 2, 3])
    store.add([4, 5, 6])
    assert store.find([1, 2], 5) == [3]
    assert store.find([2, 3], 5) == []
    assert store.find([3, 4], 5) == []


def naive_find(
    outputs: Sequence[Sequence[int]], tokens: Sequence[int], sizes: GramSizes, limit: int
) -> list[int]:
    for n in range(min(sizes.max_n, len(tokens)), sizes.min_n - 1, -1):
        for output in reversed(outputs):
            for end in range(len(output) - 1, n - 1, -1):
                if list(output[end - n : end]) == list(tokens[-n:]):
                    return list(output[end : end + limit])
    return []


@given(
    st.lists(st.lists(st.integers(0, 2), max_size=12), max_size=10), st.lists(st.integers(0, 2), max_size=5)
)
def test_finds_the_latest_longest_match_of_what_it_holds(outputs: list[list[int]], tokens: list[int]) -> None:
    capacity, sizes = 25, GramSizes(1, 3)
    store = SharedStore(capacity, sizes)
    held: deque[int] = deque(maxlen=capacity)
    for output in outputs:
        store.add(output)
        held.extend([*output[-(capacity - 1) :], -1] if len(output) > sizes.min_n else [])
    kept: list[list[int]] = [[]]
    for token in held:
        if token == -1:
            kept.append([])
        else:
            kept[-1].append(token)
    assert store.find(tokens, 4) == naive_find(kept, tokens, sizes, 4)
    assert len(store) == len(held)


def test_a_million_distinct_tokens_stay_within_the_bound() -> None:
    """A shared store once grew with every token served until memory ran out."""
    capacity, length = 2_000, 500
    store = SharedStore(capacity, GramSizes(2, 3))
    rng = random.Random(0)
    outputs = [[int(rng.random() * 2**31) for _ in range(length)] for _ in range(2_000)]
    for output in outputs:
        store.add(output)
        assert len(store) <= capacity
        assert store.num_ngrams <= 2 * capacity
    assert store.find(outputs[-1][:3], 2) == outputs[-1][3:5]
    assert store.find(outputs[-5][:3], 2) == []


def test_an_output_longer_than_the_store_keeps_its_end() -> None:
    store = SharedStore(10, GramSizes(1, 2))
    store.add(range(100))
    assert store.find([97], 5) == [98, 99]
    assert store.find([80], 5) == []
    assert len(store) == 10


@pytest.mark.parametrize("tokens", [-1, 1, 1.5, "10", True])
def test_a_bad_size_is_refused(tokens: object) -> None:
    with pytest.raises(ValueError, match="shared store"):
        NgramProposer(shared_store_tokens=tokens)  # type: ignore[arg-type]


def test_a_store_smaller_than_an_ngram_stays_bounded() -> None:
    store = SharedStore(4, GramSizes(1, 8))
    for _ in range(3):
        store.add(range(100))
        assert store.num_ngrams <= 4 * 8
        assert all(end > store._num_stored - 4 for end in store._ends.values())


def test_keys_that_collide_give_no_false_match(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ngram_keys, "_MULTIPLIERS", [1] * ngram_keys.MAX_N)  # order no longer counts
    store = SharedStore(50, GramSizes(2, 2))
    store.add([1, 2, 3])
    assert store.find([2, 1], 1) == []
    assert store.find([1, 2], 1) == [3]
