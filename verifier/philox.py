"""Philox4x32-10, the counter-based generator under every random number drawn."""

from __future__ import annotations

from torch import Tensor

WORD = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10

Words = tuple[Tensor, Tensor, Tensor, Tensor]


def philox(counter: Words, key: tuple[Tensor, Tensor]) -> Words:
    """Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).

    Args:
        counter, key: int64, each word in 0 ... 2**32 - 1; shapes broadcast together.

    Returns:
        Four words of the common shape, each in 0 ... 2**32 - 1.
    """
    word0, word1, word2, word3 = counter
    key0, key1 = key
    for _ in range(ROUNDS):
        # int64 products wrap, but their low 64 bits are the unsigned product's. Only what is multiplied next
        # has to be cut to 32 bits; above them word 1, word 3 and the keys may carry anything.
        product0, product1 = word0 * MULTIPLIERS[0], word2 * MULTIPLIERS[1]
        word0 = ((product1 >> 32) ^ word1 ^ key0) & WORD
        word2 = ((product0 >> 32) ^ word3 ^ key1) & WORD
        word1, word3 = product1, product0
        key0, key1 = key0 + KEY_STEPS[0], key1 + KEY_STEPS[1]
    return word0, word1 & WORD, word2, word3 & WORD
