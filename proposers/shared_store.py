"""Outputs of finished requests, so that a new request can draft from what others were answered."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from foredraft.proposers.ngram_keys import GramSizes

_SEPARATOR = -1


class SharedStore:
    """A ring of at most ``capacity`` tokens (one separator per output included); the oldest make room.

    n-grams are entered and evicted with their tokens, about 350 bytes a token for sizes 2 to 4. Neither an
    n-gram nor what follows it runs across two outputs. A place p counts all tokens ever stored; its token
    lies in slot p % capacity.

    Raises:
        ValueError: capacity below 2.
    """

    def __init__(self, capacity: int, sizes: GramSizes) -> None:
        if type(capacity) is not int or capacity < 2:
            raise ValueError(f"a shared store needs a whole number of tokens, 2 or more, got {capacity!r}")
        self._capacity = capacity
        self._sizes = sizes
        self._ring = array("i")
        self._num_stored = 0
        self._ends: dict[int, int] = {}

    def __len__(self) -> int:
        """Tokens held now."""
        return len(self._ring)

    @property
    def num_ngrams(self) -> int:
        """n-grams held now; at most (max_n - min_n + 1) per token."""
        return len(self._ends)

    def add(self, output: Sequence[int]) -> None:
        """Store one output; of one that does not fit, its last part."""
        tokens = list(output[-(self._capacity - 1) :])
        if len(tokens) <= self._sizes.min_n:
            return
        for pos, token in enumerate(tokens):
            place = self._append(token)
            for key in self._sizes.keys_before(tokens, pos):
                self._ends[key] = place
        self._append(_SEPARATOR)

    def _append(self, token: int) -> int:
        place = self._num_stored
        if place < self._capacity:
            self._ring.append(token)
        else:
            self._forget_ngrams_from(place - self._capacity)
            self._ring[place % self._capacity] = token
        self._num_stored += 1
        return place

    def _forget_ngrams_from(self, place: int) -> None:
        tokens = self._read(place, self._sizes.max_n)
        for n in range(self._sizes.min_n, len(tokens) + 1):
            key = self._sizes.keys_before(tokens, n)[-1]
            if self._ends.get(key) == place + n:
                del self._ends[key]

    def _read(self, place: int, limit: int) -> list[int]:
        """Up to ``limit`` tokens from ``place`` on, ending with their output."""
        tokens: list[int] = []
        for at in range(place, min(place + limit, self._num_stored)):
            token = self._ring[at % self._capacity]
            if token == _SEPARATOR:
                break
            tokens.append(token)
        return tokens

    def find(self, tokens: Sequence[int], limit: int) -> list[int]:
        """What followed the longest stored suffix of ``tokens``, at most ``limit`` tokens; may be empty."""
        keys = self._sizes.keys_before(tokens, len(tokens))
        for n in range(self._sizes.min_n + len(keys) - 1, self._sizes.min_n - 1, -1):
            end = self._ends.get(keys[n - self._sizes.min_n])
            if end is not None and self._read(end - n, n) == list(tokens[-n:]):
                return self._read(end, limit)
        return []
