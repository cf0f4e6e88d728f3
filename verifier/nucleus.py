"""Top-p on rows whose nucleus may be any part of the vocabulary, without sorting it."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from foredraft.verifier.blocks import block_max, total_mass
from foredraft.verifier.rows import select_rows
from foredraft.verifier.top_tokens import BLOCK, by_id_within_ties, top_tokens

FEW = 64
"""A nucleus that surely has no more tokens than this is found among them alone."""
HALVINGS = 7
"""Each costs three passes over the vocabulary; after seven, a few hundred tokens a row are left to sort."""
ROUNDING = 1e-5
"""Relative error allowed to a float32 sum or quotient while the bracket is narrowed."""


def keep_nucleus(weights: Tensor, top_p: Tensor) -> None:
    """Zero all but the smallest set of largest weights that holds ``top_p`` of a row's mass, in place.

    Ties at the edge go to the lowest ids; at least one token stays.

    Args:
        weights: [N, V] float32, nonnegative.
        top_p: [N] float32 in (0, 1]; 1 leaves the row alone.
    """
    target = total_mass(weights) * top_p.double()
    rest = (top_p < 1) & ~_keep_few(weights, target, top_p < 1)
    chosen, rows = select_rows(weights, rest)
    if len(rows):
        _keep_by_bracket(chosen, top_p[rows], target[rows])
        if chosen is not weights:
            weights[rows] = chosen


def zero_below(weights: Tensor, threshold: Tensor) -> None:
    """Zero the weights [N, V] below their row's ``threshold`` [N], in place."""
    weights.mul_(_at_least(weights, threshold))


def _at_least(weights: Tensor, threshold: Tensor) -> Tensor:
    """1 where a weight reaches its row's threshold, else 0."""
    # A float mask: on the CPU, comparing into bool and working with it takes three times as long.
    return torch.ge(weights, threshold[:, None], out=torch.empty_like(weights))


def _between(weights: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """1 where low <= weight < high, else 0; low <= high."""
    return _at_least(weights, low).sub_(_at_least(weights, high))


def _keep_few(weights: Tensor, target: Tensor, wanted: Tensor) -> Tensor:
    """Truncate the ``wanted`` [N] rows with a small nucleus; which rows that was, [N] bool."""
    maxima = block_max(weights, BLOCK)
    at_least = maxima.topk(min(FEW, maxima.shape[1])).values.double().sum(1)
    chosen, rows = select_rows(weights, wanted & (at_least >= target))
    settled = torch.zeros_like(wanted)
    if len(rows):
        values, ids = by_id_within_ties(*top_tokens(chosen, min(FEW, weights.shape[1])))
        kept = torch.where(_before(values) < target[rows, None], values, 0.0)
        # A token as likely as the last one found may have been left out.
        clear = torch.where(kept > 0, kept, math.inf).amin(1) > values[:, -1]
        rows = rows[clear]
        weights[rows] = 0.0
        weights[rows[:, None], ids[clear]] = kept[clear]
        settled[rows] = True
    return settled


def _keep_by_bracket(weights: Tensor, top_p: Tensor, target: Tensor) -> None:
    low, high = _bracket(weights, top_p, target)
    row, token = _between(weights, low, high).nonzero().unbind(1)
    slot = _slot(row, len(weights))
    edge = weights.new_zeros(len(weights), int(slot.max()) + 1 if len(slot) else 0)
    edge[row, slot] = weights[row, token]
    zero_below(weights, high)
    kept = _largest_up_to(edge, target - total_mass(weights))
    weights[row, token] = (edge * kept)[row, slot]


def _bracket(weights: Tensor, top_p: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Bounds ``low`` < ``high`` [N] float32: weights >= low hold the target mass, weights >= high do not."""
    # Weights below this hold less than the mass to drop, even all V of them together.
    negligible = target * (1 / top_p.double() - 1) / weights.shape[1] * (1 - ROUNDING)
    low = torch.maximum(negligible.float(), weights.amin(1))
    high = weights.amax(1) * (1 + ROUNDING)
    scaled = torch.empty_like(weights)
    for _ in range(HALVINGS):
        middle = (low * high).sqrt()
        torch.mul(weights, (1 / middle)[:, None], out=scaled)
        mass = F.threshold(scaled, 1.0, 0.0, inplace=True).sum(1) * middle
        low = torch.where(mass > target * (1 + ROUNDING), middle * (1 - ROUNDING), low)
        high = torch.where(mass < target * (1 - ROUNDING), middle * (1 + ROUNDING), high)
    return low, high


def _slot(row: Tensor, num_rows: int) -> Tensor:
    """Place of each entry among those of its row; ``row`` is sorted."""
    counts = row.bincount(minlength=num_rows)
    starts = counts.cumsum(0) - counts
    return torch.arange(len(row), device=row.device) - starts[row]


def _largest_up_to(values: Tensor, mass: Tensor) -> Tensor:
    """Which of ``values`` [N, M] belong to the fewest largest ones that reach ``mass`` [N]: [N, M] bool."""
    ordered, order = values.sort(dim=1, descending=True, stable=True)
    return torch.zeros_like(order, dtype=torch.bool).scatter_(1, order, _before(ordered) < mass[:, None])


def _before(values: Tensor) -> Tensor:
    """Sum of the entries in front of each one, along the row: [N, M] float64."""
    return values.double().cumsum(1) - values
