"""Where each n-gram of one request last occurred."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foredraft.proposers.ngram_keys import GramSizes

# For a prompt of 32k random tokens and sizes 2 to 4, sorted arrays take 36 bytes a token and 6 to 9 ms
# (benchmarks/ngram_propose.py); dicts, tried in their place, took 340 bytes and 15 ms. But sorted arrays
# cannot grow. So the bulk is sorted, what came since is in a dict, and the bulk is sorted anew each time the
# dict has outgrown it: a constant cost per token on average.
MIN_SORTED_TOKENS = 256
ANCHOR_TOKENS = 8


class Match(NamedTuple):
    """An earlier occurrence of a suffix of ``length`` tokens; ``end`` is the index of the token after it."""

    end: int
    length: int


class NgramIndex:
    """Incremental index over a token history that normally only grows.

    Only n-grams that something follows are entered, so the suffix of the history never finds itself. Only
    places are kept, and a place found is compared with the history given: a history that was replaced can
    cost a match but never give a false one.
    """

    def __init__(self, sizes: GramSizes) -> None:
        self._sizes = sizes
        self._reset()

    def _reset(self) -> None:
        self._num_indexed = 0
        self._anchor: list[int] = []
        self._recent: dict[int, int] = {}
        self._num_sorted = 0
        self._sorted_keys: NDArray[np.uint64] = np.empty(0, np.uint64)
        self._sorted_ends: NDArray[np.int32] = np.empty(0, np.int32)

    def catch_up(self, tokens: Sequence[int]) -> None:
        """Enter the tokens not seen so far; start anew if this is not the old history plus more."""
        stop = len(tokens) - 1
        if not self._continues(tokens, stop):
            self._reset()
        if stop - self._num_sorted > max(MIN_SORTED_TOKENS, self._num_sorted):
            self._sort(tokens[:stop])
        for end in range(self._num_indexed + 1, stop + 1):
            for key in self._sizes.keys_before(tokens, end):
                self._recent[key] = end
        self._num_indexed = max(stop, 0)
        self._anchor = list(tokens[max(0, stop - ANCHOR_TOKENS) : max(0, stop)])

    def _continues(self, tokens: Sequence[int], stop: int) -> bool:
        if stop < self._num_indexed:
            return False
        return list(tokens[self._num_indexed - len(self._anchor) : self._num_indexed]) == self._anchor

    def _sort(self, tokens: Sequence[int]) -> None:
        keys, ends = self._sizes.all_keys(tokens)
        order = np.argsort(keys)
        keys, ends = keys[order], ends[order]
        firsts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
        self._sorted_keys = keys[firsts]
        self._sorted_ends = np.maximum.reduceat(ends, firsts)
        self._recent = {}
        self._num_sorted = self._num_indexed = len(tokens)

    def find(self, tokens: Sequence[int]) -> Match | None:
        """The latest earlier occurrence of the longest suffix that has one."""
        length = len(tokens)
        keys = self._sizes.keys_before(tokens, length)
        ends = self._ends_of(keys)
        for n in range(self._sizes.min_n + len(keys) - 1, self._sizes.min_n - 1, -1):
            end = ends[n - self._sizes.min_n]
            if end and tokens[end - n : end] == tokens[length - n :]:
                return Match(end, n)
        return None

    def _ends_of(self, keys: list[int]) -> list[int]:
        """Latest end of each key; 0 = never seen."""
        ends = [self._recent.get(key, 0) for key in keys]
        if self._num_sorted:
            places = np.searchsorted(self._sorted_keys, np.array(keys, dtype=np.uint64)).tolist()
            for key_idx, place in enumerate(places):
                if not ends[key_idx] and place < len(self._sorted_keys):
                    found = self._sorted_keys[place] == keys[key_idx]
                    ends[key_idx] = int(self._sorted_ends[place]) if found else 0
        return ends
