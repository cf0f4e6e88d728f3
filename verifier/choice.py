"""Drawing one token per row, and taking the likeliest one."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from foredraft.verifier.blocks import block_entries, block_max, block_sum, num_blocks
from foredraft.verifier.draft import PADDING
from foredraft.verifier.random import Purpose, uniforms

FAN_OUT = 64


def categorical(
    weights: Tensor, request_keys: Tensor, positions: Tensor, offsets: Tensor, purpose: Purpose
) -> Tensor:
    """Draw a token per row with probability proportional to its weight.

    Gumbel-max down a tree: the vocabulary is cut into blocks of ``FAN_OUT`` tokens, those into blocks of
    blocks; a branch is picked by its sum, level by level. This takes about 150 noises a row instead of V.
    With the noise fixed, weights that move by epsilon change the token with probability about epsilon
    (walking up the cumulative sum in vocabulary order would multiply that by the number of likely tokens
    before it), so a seeded output survives the rounding of another batch size.

    Args:
        weights: [N, V], nonnegative, not necessarily normalised.
        request_keys, positions, offsets: [N] int64, see ``random.uniforms``.

    Returns:
        [N] int64, always a token of positive weight; ``PADDING`` for a row that has none.
    """
    noise = categorical_noise(weights.shape[1], request_keys, positions, offsets, purpose)
    return pick_tokens(weights, noise)


def categorical_noise(
    vocab_size: int, request_keys: Tensor, positions: Tensor, offsets: Tensor, purpose: Purpose
) -> Tensor:
    """The uniforms ``pick_tokens`` needs for N rows: [N, number of noises] float64."""
    return uniforms(request_keys, positions, offsets, purpose, num_noises(vocab_size))


def num_noises(width: int) -> int:
    """Noises to pick one of ``width`` entries."""
    return width if width <= 2 * FAN_OUT else FAN_OUT + num_noises(num_blocks(width, FAN_OUT))


def pick_tokens(weights: Tensor, noise: Tensor) -> Tensor:
    """``categorical`` with its noise already drawn."""
    # Dividing by exponential noise orders the entries as adding Gumbel noise to their logarithms does, and a
    # weight of 0 stays 0.
    chosen = _descend(weights, torch.log(noise).neg_()).clamp_(max=weights.shape[1] - 1)
    return torch.where(weights.gather(1, chosen) > 0, chosen, PADDING).squeeze(1)


def _descend(weights: Tensor, exponentials: Tensor) -> Tensor:
    """Index of the picked entry of each row, [N, 1]; the first noises belong to the lowest level."""
    if weights.shape[1] <= 2 * FAN_OUT:
        return (weights / exponentials).argmax(1, keepdim=True)
    block = _descend(block_sum(weights, FAN_OUT), exponentials[:, FAN_OUT:])
    entries, ids = block_entries(weights, block, FAN_OUT, missing=0.0)
    return ids.gather(1, (entries / exponentials[:, :FAN_OUT]).argmax(1, keepdim=True))


def greedy_tokens(logits: Tensor) -> Tensor:
    """The likeliest token of each row of ``logits`` [N, V], ties to the lowest id: [N] int64.

    ``PADDING`` for a row in which every token is forbidden.
    """
    # In two levels because the block maxima are vectorised and a plain argmax is not: 10 times as fast.
    blocks = block_max(logits, FAN_OUT).argmax(1, keepdim=True)
    entries, ids = block_entries(logits, blocks, FAN_OUT, missing=-math.inf)
    chosen = entries.argmax(1, keepdim=True)
    possible = entries.gather(1, chosen) > -math.inf
    return torch.where(possible, ids.gather(1, chosen), PADDING).squeeze(1)
