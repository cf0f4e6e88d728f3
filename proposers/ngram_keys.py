"""64-bit keys of n-grams: one at a time for new tokens, all at once for a long prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAX_N = 32
_MASK = (1 << 64) - 1
# Any large odd number does. Two n-grams with one key cost a missed match, never a wrong one: whoever finds a
# key compares the tokens behind it.
_MULTIPLIERS = [pow(0x9E3779B97F4A7C15, power, 1 << 64) for power in range(MAX_N)]


@dataclass(frozen=True)
class GramSizes:
    """The n-gram sizes looked at, min_n <= n <= max_n.

    Raises:
        ValueError: not 1 <= min_n <= max_n <= 32.
    """

    min_n: int
    max_n: int

    def __post_init__(self) -> None:
        for name, value in (("min_n", self.min_n), ("max_n", self.max_n)):
            if type(value) is not int or not 1 <= value <= MAX_N:
                raise ValueError(f"{name} must be a whole number from 1 to {MAX_N}, got {value!r}")
        if self.min_n > self.max_n:
            raise ValueError(f"min_n ({self.min_n}) must not exceed max_n ({self.max_n})")

    def keys_before(self, tokens: Sequence[int], end: int) -> list[int]:
        """Keys of the n-grams ``tokens[end - n : end]``, shortest first; fewer where the text is shorter.

        key = sum over k of (token k places before the last + 1) * multiplier^k, mod 2^64.
        """
        key = 0
        keys = []
        for length in range(1, min(self.max_n, end) + 1):
            key = (key + (tokens[end - length] + 1) * _MULTIPLIERS[length - 1]) & _MASK
            if length >= self.min_n:
                keys.append(key)
        return keys

    def all_keys(self, tokens: Sequence[int]) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
        """Keys of every n-gram of ``tokens`` and the index just after each, both [N], in no set order."""
        values = np.array(tokens, dtype=np.int64).view(np.uint64) + np.uint64(1)
        ends = np.arange(1, len(values) + 1, dtype=np.int32)
        sums = values
        keys = [sums] if self.min_n == 1 else []
        for length in range(2, min(self.max_n, len(values)) + 1):
            sums = sums[1:] + values[: len(values) - length + 1] * np.uint64(_MULTIPLIERS[length - 1])
            if length >= self.min_n:
                keys.append(sums)
        if not keys:
            return np.empty(0, np.uint64), np.empty(0, np.int32)
        return np.concatenate(keys), np.concatenate([ends[len(ends) - len(part) :] for part in keys])
