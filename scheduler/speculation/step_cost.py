"""What a step costs apart from drafting: seconds by tokens in the target pass, learned while serving."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""Tokens in a pass whose seconds are learned; between them they are interpolated. All the small ones, because
seconds need not grow with tokens there: matrix libraries have kernels for some sizes and not for others."""

KNOTS = np.array(SIZES, dtype=float)
_LOGS = np.log2(KNOTS)

# Of the logarithm of the seconds. A machine gets slower and faster as a whole, by a few per cent per step;
# how two sizes of a pass compare changes far more slowly, and alike for sizes that are close.
NOISE = 0.06**2
_NEAR = np.exp(-np.abs(_LOGS[:, None] - _LOGS) / 2)
_DRIFT = 0.02**2 + 0.003**2 * _NEAR + 0.001**2 * np.eye(len(KNOTS))
_SHAPE = 0.3**2 * _NEAR + 0.1**2 * np.eye(len(KNOTS))
_CALIBRATED_SHAPE = 0.1**2 * _NEAR + 0.03**2 * np.eye(len(KNOTS))
GUESS = 1.0 + KNOTS / 32
"""How seconds grow with the size of a pass, before any was measured."""

SEED_ERROR = 0.5**2
NO_SEED_ERROR = 10.0**2
OTHER_BATCH_ERROR = 0.3**2
CLIP = 2.5
"""Standard errors beyond which a time counts no more: a pause of the machine must not decide."""


def batch_class(num_requests: int) -> float:
    """Batch sizes that are taken to cost the same: half powers of two, as their logarithm."""
    return round(2 * math.log2(max(num_requests, 1))) / 2


class StepCost:
    """A Kalman filter per batch size over the logarithm of the seconds at some sizes of the pass.

    One measured size so also moves the others, as far as they are known to move together: when the machine
    slows down by half while only one size is in use, the others are taken to be slower by half as well.

    Args:
        seed: seconds by tokens in a pass, from a calibration; empty = nothing is known before the first step.
    """

    def __init__(self, seed: Mapping[int, float] | None = None) -> None:
        self._seeded = bool(seed)
        self._seed = _interpolated(seed) if seed else np.log(GUESS)
        self._curves: dict[float, _Curve] = {}

    @property
    def known(self) -> bool:
        """Whether anything can be predicted."""
        return self._seeded or bool(self._curves)

    def seconds(self, num_requests: int, num_tokens: Floats) -> Floats:
        """Predicted seconds for each number of tokens in the pass."""
        return self._curve(num_requests).seconds(num_tokens)

    def pass_s(self, num_requests: int, num_tokens: int) -> float:
        """The same for one number."""
        return self._curve(num_requests).pass_s(num_tokens)

    def observe(self, num_requests: int, num_tokens: int, seconds: float) -> None:
        """Learn from a step."""
        self._curve(num_requests).observe(num_tokens, math.log(max(seconds, 1e-9)))

    def _curve(self, num_requests: int) -> _Curve:
        batch = batch_class(num_requests)
        if batch not in self._curves:
            self._curves[batch] = self._new_curve(batch)
        return self._curves[batch]

    def _new_curve(self, batch: float) -> _Curve:
        if not self._curves:
            seeded = SEED_ERROR + _CALIBRATED_SHAPE
            return _Curve(self._seed.copy(), seeded if self._seeded else NO_SEED_ERROR + _SHAPE)
        nearest = self._curves[min(self._curves, key=lambda known: abs(known - batch))]
        return _Curve(nearest.logs.copy(), nearest.covariance + OTHER_BATCH_ERROR + _SHAPE)


class _Curve:
    def __init__(self, logs: Floats, covariance: Floats) -> None:
        self.logs, self.covariance = logs, covariance
        self._seconds = np.exp(self.logs)
        self._listed = self._seconds.tolist()

    def pass_s(self, num_tokens: int) -> float:
        """As ``seconds``, without the overhead of arrays."""
        right = bisect_left(SIZES, num_tokens)
        if right == len(SIZES):
            return float(self.seconds(np.array(float(num_tokens))))
        if right == 0:
            return float(self._listed[0])
        share = (num_tokens - SIZES[right - 1]) / (SIZES[right] - SIZES[right - 1])
        return float((1 - share) * self._listed[right - 1] + share * self._listed[right])

    def seconds(self, num_tokens: Floats) -> Floats:
        inside = np.interp(num_tokens, KNOTS, self._seconds)
        slope = max(0.0, (self._seconds[-1] - self._seconds[-3]) / (KNOTS[-1] - KNOTS[-3]))
        return np.asarray(inside + slope * np.maximum(num_tokens - KNOTS[-1], 0.0))

    def observe(self, num_tokens: int, log_seconds: float) -> None:
        weights = _weights(num_tokens)
        self.covariance += _DRIFT
        shared = self.covariance @ weights
        variance = float(weights @ shared) + NOISE
        limit = CLIP * math.sqrt(variance)
        surprise = min(max(log_seconds - float(weights @ self.logs), -limit), limit)
        gain = shared / variance
        self.logs += gain * surprise
        self.covariance -= np.outer(gain, shared)
        self._seconds = np.exp(self.logs)
        self._listed = self._seconds.tolist()


def _weights(num_tokens: int) -> Floats:
    """How a size of the pass is made of the two knots around it."""
    weights = np.zeros(len(KNOTS))
    right = int(np.searchsorted(KNOTS, num_tokens))
    if right == 0 or right == len(KNOTS):
        weights[min(right, len(KNOTS) - 1)] = 1.0
        return weights
    share = (num_tokens - KNOTS[right - 1]) / (KNOTS[right] - KNOTS[right - 1])
    weights[right - 1], weights[right] = 1 - share, share
    return weights


def _interpolated(seed: Mapping[int, float]) -> Floats:
    """Logarithms at the knots; beyond the largest size seconds grow as between the last two."""
    sizes = np.array(sorted(seed), dtype=float)
    seconds = np.array([seed[int(size)] for size in sizes])
    values = np.interp(KNOTS, sizes, seconds)
    if len(sizes) > 1:
        slope = max(0.0, (seconds[-1] - seconds[-2]) / (sizes[-1] - sizes[-2]))
        values += slope * np.maximum(KNOTS - sizes[-1], 0.0)
    return np.asarray(np.log(values))
