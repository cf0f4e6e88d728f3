"""The index against a search through the whole history, which is slow and plainly right."""

import random
from typing import SupportsIndex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.proposers import ngram_keys
from foredraft.proposers.ngram_index import ANCHOR_TOKENS, MIN_SORTED_TOKENS, NgramIndex
from foredraft.proposers.ngram_keys import GramSizes

FEW_TOKENS = st.integers(0, 3)  # few, so that matches of every length are common
HISTORIES = st.lists(FEW_TOKENS, max_size=40)
SIZES = st.tuples(st.integers(1, 4), st.integers(0, 3)).map(lambda pair: GramSizes(pair[0], sum(pair)))


def naive_find(tokens: list[int], sizes: GramSizes) -> int | None:
    for n in range(sizes.max_n, sizes.min_n - 1, -1):
        for end in range(len(tokens) - 1, n - 1, -1):
            if tokens[end - n : end] == tokens[len(tokens) - n :]:
                return end
    return None


def find(index: NgramIndex, tokens: list[int]) -> int | None:
    index.catch_up(tokens)
    match = index.find(tokens)
    return None if match is None else match.end


@given(HISTORIES, SIZES)
def test_finds_the_latest_longest_match(tokens: list[int], sizes: GramSizes) -> None:
    assert find(NgramIndex(sizes), tokens) == naive_find(tokens, sizes)


@given(st.lists(st.lists(FEW_TOKENS, max_size=6), max_size=12), SIZES)
def test_growing_step_by_step_equals_all_at_once(blocks: list[list[int]], sizes: GramSizes) -> None:
    index = NgramIndex(sizes)
    tokens: list[int] = []
    for block in blocks:
        tokens = tokens + block
        assert find(index, tokens) == naive_find(tokens, sizes)


@given(st.integers(0, 10**6), st.integers(1, 3 * MIN_SORTED_TOKENS), st.integers(2, 60))
def test_long_histories_cross_from_dict_to_sorted_arrays(seed: int, prompt_len: int, vocab: int) -> None:
    rng = random.Random(seed)
    sizes = GramSizes(2, 5)
    tokens = [rng.randrange(vocab) for _ in range(prompt_len)]
    index = NgramIndex(sizes)
    for _ in range(2 * MIN_SORTED_TOKENS // 32):
        assert find(index, tokens) == naive_find(tokens, sizes)
        tokens += [rng.randrange(vocab) for _ in range(32)]


@pytest.mark.parametrize("length", [ANCHOR_TOKENS // 2, 50, 2 * MIN_SORTED_TOKENS])
@pytest.mark.parametrize("shift", [1, 3])
def test_a_shifted_history_is_indexed_anew(length: int, shift: int) -> None:
    """The index of a history cut at its front once held places past the new end, and aborted the server."""
    sizes = GramSizes(1, 3)
    index = NgramIndex(sizes)
    tokens = list(range(length)) + list(range(length))
    find(index, tokens)
    for grown in (0, 1, shift, length):
        shifted = tokens[shift:] + list(range(grown))
        assert find(index, shifted) == naive_find(shifted, sizes)


@given(HISTORIES, HISTORIES, SIZES)
def test_replaced_and_shortened_histories_never_match_falsely(
    old: list[int], new: list[int], sizes: GramSizes
) -> None:
    index = NgramIndex(sizes)
    find(index, old)
    end = find(index, new)
    if end is not None:
        assert sizes.min_n <= end < len(new)
        assert new[end - sizes.min_n : end] == new[len(new) - sizes.min_n :]
    if len(new) < len(old):
        assert end == naive_find(new, sizes)


@given(st.lists(st.integers(0, 2**31 - 1), max_size=40), SIZES)
def test_all_keys_are_the_keys_of_each_place(tokens: list[int], sizes: GramSizes) -> None:
    keys, ends = sizes.all_keys(tokens)
    expected = [(key, end) for end in range(len(tokens) + 1) for key in sizes.keys_before(tokens, end)]
    assert sorted(zip(keys.tolist(), ends.tolist(), strict=True)) == sorted(expected)


@pytest.mark.parametrize(
    ("min_n", "max_n"), [(0, 2), (-1, 2), (3, 2), (1, 33), (1.0, 2), ("1", 2), (True, 2)]
)
def test_bounds_out_of_range_are_refused(min_n: object, max_n: object) -> None:
    with pytest.raises(ValueError, match=r"m(in|ax)_n .*must"):
        GramSizes(min_n, max_n)  # type: ignore[arg-type]


class ReadCounter(list[int]):
    """A token list that counts the tokens read from it."""

    num_read = 0

    def __getitem__(self, key: SupportsIndex | slice) -> int | list[int]:  # type: ignore[override]
        self.num_read += len(range(*key.indices(len(self)))) if isinstance(key, slice) else 1
        return super().__getitem__(key)


@pytest.mark.parametrize("length", [1_000, 8_000, 32_000])
def test_a_new_token_costs_the_same_in_any_context(length: int) -> None:
    """A look-up once searched the whole context at every step; 128 rows of 32k tokens stalled the engine."""
    tokens = ReadCounter(range(length))
    index = NgramIndex(GramSizes(2, 4))
    index.catch_up(tokens)
    tokens.append(length)
    tokens.num_read = 0
    assert find(index, tokens) is None
    assert tokens.num_read <= 2 * ANCHOR_TOKENS + 2 * 4


def test_a_place_whose_tokens_were_edited_is_not_used() -> None:
    sizes = GramSizes(2, 3)
    index = NgramIndex(sizes)
    unchanged = list(range(100, 120))
    find(index, [1, 2, 3, *unchanged])
    assert find(index, [9, 9, 9, *unchanged, 1, 2]) is None


@given(HISTORIES)
def test_keys_that_collide_give_no_false_match(tokens: list[int]) -> None:
    sizes = GramSizes(2, 4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ngram_keys, "_MULTIPLIERS", [1] * ngram_keys.MAX_N)  # order no longer counts
        end = find(NgramIndex(sizes), tokens)
    assert end is None or tokens[end - 2 : end] == tokens[-2:]
