"""The uniforms of ``random.uniforms`` on a CPU, by numpy: a third of torch's time for one row, half for 1000.

A draw for one token takes some 70 calls of Philox, ten rounds each. Small operations cost what it takes to
start them, and numpy starts them faster; two words side by side halve their number.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from foredraft.verifier.philox import KEY_STEPS, MULTIPLIERS, ROUNDS, WORD

# Words 0 and 2 of the counter are multiplied, words 1 and 3 are not: each pair along the first axis.
PAIR_MULTIPLIERS = np.array(MULTIPLIERS)[:, None, None]
PAIR_KEY_STEPS = np.arange(ROUNDS)[:, None, None, None] * np.array(KEY_STEPS)[:, None, None]


def cpu_uniforms(
    request_keys: Tensor, positions: Tensor, offsets: Tensor, purpose: int, count: int
) -> Tensor:
    """See ``random.uniforms``: the same numbers to the last bit."""
    num_places, num_calls = len(positions), (count + 1) // 2
    words = np.empty((2, num_places, num_calls), dtype=np.int64)
    words[0], words[1] = np.arange(num_calls), offsets.numpy()[:, None]
    others = np.empty((2, num_places, 1), dtype=np.int64)
    others[0], others[1] = positions.numpy()[:, None], purpose
    first, second = _philox_pairs(words, others, request_keys.numpy()[:, None])
    bits = ((first >> 5) << 26) | (second >> 6)
    uniform = np.maximum(bits.astype(np.float64), 0.5) * 2.0**-53
    return torch.from_numpy(uniform.transpose(1, 2, 0).reshape(num_places, 2 * num_calls)[:, :count])


def _philox_pairs(words: np.ndarray, others: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``philox`` with words 0 and 2 in ``words`` [2, N, calls], words 1 and 3 in ``others`` [2, N, 1]."""
    for round_keys in np.stack((keys, keys >> 32)) + PAIR_KEY_STEPS:
        swapped = (words * PAIR_MULTIPLIERS)[::-1]
        words = swapped >> 32
        words ^= others
        words ^= round_keys
        words &= WORD
        others = swapped
    return words, others & WORD
