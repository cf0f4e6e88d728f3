"""The learning rate over the training: linear warm-up, then a cosine."""

from __future__ import annotations

import math

WARM_UP = 0.02
LAST = 0.05


def learning_rate(highest: float, done: float) -> float:
    """The rate when the share ``done`` of all tokens is trained: up to ``highest``, down to 5 % of it."""
    if done < WARM_UP:
        return highest * done / WARM_UP
    cosine = 0.5 * (1.0 + math.cos(math.pi * min(1.0, (done - WARM_UP) / (1.0 - WARM_UP))))
    return highest * (LAST + (1.0 - LAST) * cosine)
