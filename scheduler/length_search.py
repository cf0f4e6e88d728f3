"""The search for the lengths that emit most tokens per second."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PRICES = np.array([0.0, 0.03, 0.07, 0.12, 0.2, 0.3, 0.4, 0.5, 0.65, 0.85])
"""Accepted tokens that a token more in the pass must be worth."""

Cost = Callable[[Floats, Ints, Ints], Floats]
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
        lengths: [D, P, B] lengths under each depth and price.
        tokens_per_s: [D, P] predicted.
        seconds: [D, P] of the step.
    """

    depths: Ints
    lengths: Ints
    tokens_per_s: Floats
    seconds: Floats

    def best(self) -> Plan:
        """The fastest plan; of equals the shortest."""
        depth, price = divmod(int(np.argmax(self.tokens_per_s)), len(PRICES))
        return Plan(price, depth) if depth else PLAIN

    def rate(self, plan: Plan) -> float:
        """Predicted tokens per second of a plan."""
        return float(self.tokens_per_s[plan.depth, plan.price])


def depths_up_to(longest: int) -> Ints:
    """Depths worth telling apart: all up to 4, then in steps of about a quarter."""
    depths = [*range(min(longest, 4) + 1)]
    while depths[-1] < longest:
        depths.append(min(longest, depths[-1] + max(2, depths[-1] // 4)))
    return np.array(depths, dtype=np.int64)


@dataclass(frozen=True)
class Yields:
    """What B requests bring by length.

    Attributes:
        emitted: [K + 1, B] accepted tokens by length, less what it costs to take up drafting.
        drafted: [K + 1, B] tokens drafted by length.
        caps: [B] longest length.
    """

    emitted: Floats
    drafted: Floats
    caps: Ints


def yields_by_length(accepted: Floats, drafted: Floats, caps: Ints, entry_tokens: Floats) -> Yields:
    """Sums over the places.

    Args:
        accepted, drafted: [B, K], see ``AcceptanceEstimator.yields``.
        entry_tokens: [B] what it costs to take up drafting, in emitted tokens.
    """
    num_requests, num_places = accepted.shape
    emitted_by = np.zeros((num_places + 1, num_requests))
    drafted_by = np.zeros((num_places + 1, num_requests))
    np.cumsum(accepted.T, axis=0, out=emitted_by[1:])
    np.cumsum(drafted.T, axis=0, out=drafted_by[1:])
    emitted_by[1:] -= entry_tokens
    return Yields(emitted_by, drafted_by, caps)


def search_lengths(yields: Yields, depths: Ints, cost: Cost) -> Search:
    """Tokens per second of every depth and price; a request drafts as far as its tokens are worth it.

    For a given depth the best lengths maximise emitted - price * drafted tokens at some price, request by
    request: the price is scanned instead of the lengths of B requests.
    """
    num_requests = len(yields.caps)
    lengths = _best_lengths(yields, PRICES)[depths]
    flat = lengths * num_requests + np.arange(num_requests)
    num_emitted = num_requests + yields.emitted.ravel()[flat].sum(axis=2)
    num_drafted = yields.drafted.ravel()[flat].sum(axis=2)
    steps = np.broadcast_to(depths[:, None], num_drafted.shape)
    seconds = cost(num_drafted, steps, lengths.sum(axis=2))
    return Search(depths, lengths, num_emitted / seconds, seconds)


def lengths_under(plan: Plan, yields: Yields, depths: Ints) -> Ints:
    """[B] lengths of one plan."""
    depth = int(depths[plan.depth])
    shallow = Yields(yields.emitted[: depth + 1], yields.drafted[: depth + 1], yields.caps)
    return np.asarray(_best_lengths(shallow, PRICES[plan.price : plan.price + 1])[-1, 0])


def _best_lengths(yields: Yields, prices: Floats) -> Ints:
    """[K + 1, P, B]: the best length of each request at each price, not above each depth."""
    num_lengths, num_requests = yields.emitted.shape
    lengths = np.zeros((num_lengths, len(prices), num_requests), dtype=np.int64)
    best = np.zeros((len(prices), num_requests))
    for length in range(1, num_lengths):
        emitted = np.where(yields.caps < length, -np.inf, yields.emitted[length])
        worth = emitted - prices[:, None] * yields.drafted[length]
        lengths[length] = np.where(worth > best, length, lengths[length - 1])
        np.maximum(best, worth, out=best)
    return lengths
