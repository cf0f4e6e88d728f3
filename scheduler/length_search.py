"""The search for the lengths that emit most tokens per second."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PRICES = np.array([0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9])
"""Accepted tokens that a token more in the pass must be worth."""

Cost = Callable[[Floats, Floats, Floats], Floats]
"""(tokens drafted, drafting steps, tokens asked for) -> seconds of the step, elementwise."""


@dataclass(frozen=True)
class Plan:
    """A way to draft: steps of drafting at most, and what a token must be worth; indices of the search."""

    price: int
    depth: int


PLAIN = Plan(0, 0)


@dataclass(frozen=True)
class Search:
    """Every plan for B requests.

    Attributes:
        depths: [D] drafting steps of each depth, the first 0.
        lengths: [P, B, D] lengths under each price and depth.
        tokens_per_s: [P, D] predicted.
        seconds: [P, D] of the step.
    """

    depths: Ints
    lengths: Ints
    tokens_per_s: Floats
    seconds: Floats

    def best(self) -> Plan:
        """The fastest plan; of equals the shortest."""
        depth, price = divmod(int(np.argmax(self.tokens_per_s.T)), len(PRICES))
        return Plan(price, depth) if depth else PLAIN

    def rate(self, plan: Plan) -> float:
        """Predicted tokens per second of a plan."""
        return float(self.tokens_per_s[plan.price, plan.depth])


def depths_up_to(longest: int) -> Ints:
    """Depths worth telling apart: all up to 4, then in steps of about a quarter."""
    depths = [*range(min(longest, 4) + 1)]
    while depths[-1] < longest:
        depths.append(min(longest, depths[-1] + max(2, depths[-1] // 4)))
    return np.array(depths, dtype=np.int64)


def search_lengths(
    accepted: Floats, drafted: Floats, caps: Ints, entry_tokens: Floats, depths: Ints, cost: Cost
) -> Search:
    """Tokens per second of every price and depth; each request drafts as far as its tokens are worth the price.

    For a given depth the best lengths maximise (emitted) - price * (tokens in the pass) at some price, request
    by request: the price is scanned instead of the lengths of B requests.

    Args:
        accepted, drafted: [B, K], see ``AcceptanceEstimator.yields``.
        caps: [B] longest length of each request.
        entry_tokens: [B] what it costs to take up drafting, in emitted tokens.
    """
    num_requests, num_places = accepted.shape
    emitted_by = np.zeros((num_requests, num_places + 1))
    tokens_by = np.zeros((num_requests, num_places + 1))
    np.cumsum(accepted, axis=1, out=emitted_by[:, 1:])
    np.cumsum(drafted, axis=1, out=tokens_by[:, 1:])
    emitted_by[:, 1:] -= entry_tokens[:, None]
    lengths = _best_lengths(emitted_by, tokens_by, caps)[:, :, depths]
    flat = lengths + (np.arange(num_requests) * (num_places + 1))[:, None]
    num_emitted = num_requests + emitted_by.ravel()[flat].sum(axis=1)
    num_tokens = tokens_by.ravel()[flat].sum(axis=1)
    steps = np.broadcast_to(depths, num_tokens.shape).astype(np.float64)
    seconds = cost(num_tokens, steps, lengths.sum(axis=1).astype(np.float64))
    return Search(depths, lengths, num_emitted / seconds, seconds)


def _best_lengths(emitted_by: Floats, tokens_by: Floats, caps: Ints) -> Ints:
    """[P, B, K + 1]: the best length of each request, not above each depth."""
    places = np.arange(emitted_by.shape[1])
    worth = emitted_by - PRICES[:, None, None] * tokens_by
    worth = np.where(places <= caps[:, None], worth, -np.inf)
    is_best = np.zeros(worth.shape, dtype=bool)
    is_best[:, :, 1:] = worth[:, :, 1:] > np.maximum.accumulate(worth, axis=2)[:, :, :-1]
    return np.asarray(np.maximum.accumulate(np.where(is_best, places, 0), axis=2))
