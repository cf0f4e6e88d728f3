"""Counter-based random numbers: one uniform per (request, place, purpose), whatever the batch around it."""

from __future__ import annotations

from enum import IntEnum
from hashlib import blake2b

import torch
from torch import Tensor

from foredraft.verifier.cpu_random import cpu_uniforms
from foredraft.verifier.philox import WORD, philox


class Purpose(IntEnum):
    """What a number is drawn for. Two purposes never share a number.

    TARGET is the target's own token at a position: keyed by position alone (offset 0), so that a point-mass
    draft changes no token. The others are keyed by block start and offset, because a rejected tail has
    already shaped the accepted length and its numbers must not come back at the same position.
    """

    TARGET = 0
    DRAFT = 1
    ACCEPT = 2
    RECOVER = 3


def request_key(seed: int | None, engine_seed: int, request_id: str) -> int:
    """The 64-bit key of a request's random stream, the same on every rank and in every process.

    A seeded request's key depends on its seed alone, so that equal seeds repeat.
    """
    text = f"seed {seed}" if seed is not None else f"request {engine_seed} {request_id}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


def uniforms(
    request_keys: Tensor, positions: Tensor, offsets: Tensor, purpose: Purpose, count: int
) -> Tensor:
    """``count`` independent uniforms for each of N places.

    Args:
        request_keys: [N] int64.
        positions: [N] int64 below 2**32, a position (TARGET) or a block start.
        offsets: [N] int64 below 2**32, offset in the block; 0 for TARGET.

    Returns:
        [N, count] float64 in the open interval (0, 1), 53 bits each. Entry i does not depend on ``count``.
    """
    if request_keys.device.type == "cpu":
        return cpu_uniforms(request_keys, positions, offsets, int(purpose), count)
    return torch_uniforms(request_keys, positions, offsets, purpose, count)


def torch_uniforms(
    request_keys: Tensor, positions: Tensor, offsets: Tensor, purpose: Purpose, count: int
) -> Tensor:
    """See ``uniforms``; on any device."""
    calls = torch.arange((count + 1) // 2, device=request_keys.device)
    counter = (calls, positions[:, None], offsets[:, None], torch.full_like(positions[:, None], int(purpose)))
    key = ((request_keys & WORD)[:, None], ((request_keys >> 32) & WORD)[:, None])
    first, second, third, fourth = philox(counter, key)
    pairs = torch.stack((_to_double(first, second), _to_double(third, fourth)), dim=-1)
    return pairs.flatten(1)[:, :count]


def _to_double(high: Tensor, low: Tensor) -> Tensor:
    bits = ((high >> 5) << 26) | (low >> 6)
    # 0 becomes half a step, because the logarithm of every uniform is taken.
    return bits.double().clamp_(min=0.5).mul_(2.0**-53)
