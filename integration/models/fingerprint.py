"""A short name for the weights of a model, the same in every dtype they are loaded in."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable

import torch
from torch import Tensor

SIGNS_PER_TENSOR = 4096


def fingerprint(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """Hash of each tensor's name, shape and the signs of up to ``SIGNS_PER_TENSOR`` weights spread over it.

    Rounding to another dtype changes no sign, while training a model further flips many. Reading a sample
    takes milliseconds where hashing everything takes seconds.

    Args:
        tensors: (name, tensor) of every parameter, as ``named_parameters`` gives them.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors, key=lambda pair: pair[0]):
        flat = tensor.detach().flatten()
        sample = flat[:: max(1, math.ceil(len(flat) / SIGNS_PER_TENSOR))]
        digest.update(f"{name} {tuple(tensor.shape)}".encode())
        digest.update(torch.signbit(sample).cpu().numpy().tobytes())
    return digest.hexdigest()[:32]
