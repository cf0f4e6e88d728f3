"""Logits to the law a token is drawn from: temperature, min-p, top-k, top-p, in vLLM's order."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from foredraft.verifier.blocks import row_chunks, total_mass
from foredraft.verifier.choice import greedy_tokens
from foredraft.verifier.draft import PADDING
from foredraft.verifier.nucleus import keep_nucleus, zero_below
from foredraft.verifier.rows import MIN_TEMPERATURE, RowSampling, select_rows
from foredraft.verifier.top_tokens import by_id_within_ties, top_tokens

MAX_CANDIDATES = 1024
"""Rows with a larger top-k are worked out over the whole vocabulary."""


def target_probs(logits: Tensor, rows: RowSampling) -> Tensor:
    """The law each token is drawn from; proposers turn their own logits into the same law with it.

    min-p acts on the temperature-scaled law; top-k keeps ties with the k-th largest logit; top-p keeps the
    smallest set of likeliest tokens whose share of what is left reaches top-p, ties to the lowest ids. A
    greedy row is a one-hot.

    Args:
        logits: [N, V] any float dtype; not modified.

    Returns:
        [N, V] float32, rows sum to 1; NaN in a row that forbids every token.
    """
    logits = logits.float()
    probs = torch.empty_like(logits)
    for chunk in row_chunks(logits):
        probs[chunk] = target_weights(logits[chunk], rows.select(chunk))
    _normalise(probs, rows.truncated())
    greedy = (rows.temperature < MIN_TEMPERATURE).nonzero().squeeze(1)
    if len(greedy):
        tokens = greedy_tokens(logits[greedy])
        probs[greedy] = 0.0
        probs[greedy, tokens] = torch.where(tokens == PADDING, math.nan, 1.0)
    return probs


def _normalise(weights: Tensor, chosen: Tensor) -> None:
    # Row by row: what the rest of the batch asks for must not change even the last bit of a law.
    part, rows = select_rows(weights, chosen)
    if len(rows):
        weights[rows] = part / total_mass(part).float()[:, None]


def target_weights(logits: Tensor, rows: RowSampling) -> Tensor:
    """The same law for rows that are not greedy, truncated but not normalised again: [N, V] float32."""
    if rows.top_k is None:
        return _dense_weights(logits, rows)
    weights, settled = _candidate_weights(logits, rows, rows.top_k)
    rest = (~settled).nonzero().squeeze(1)
    if len(rest):
        weights[rest] = _dense_weights(logits[rest], rows.select(rest))
    return weights


def _scaled(logits: Tensor, rows: RowSampling) -> Tensor:
    """The logits over the temperature; the logits themselves where every temperature is 1."""
    if bool((rows.temperature == 1).all()):
        return logits
    return logits / rows.temperature.clamp(min=MIN_TEMPERATURE)[:, None]


def _dense_weights(logits: Tensor, rows: RowSampling) -> Tensor:
    scaled = _scaled(logits, rows)
    if rows.top_k is not None:
        scaled = scaled.masked_fill(logits < _kth_logit(logits, rows.top_k), -math.inf)
    weights = torch.softmax(scaled, dim=-1)
    if rows.min_p is not None:
        zero_below(weights, rows.min_p * weights.amax(-1))
    if rows.top_p is not None:
        keep_nucleus(weights, rows.top_p)
    return weights


def _kth_logit(logits: Tensor, top_k: Tensor) -> Tensor:
    top_k = top_k.clamp(max=logits.shape[1])
    largest = logits.topk(int(top_k.max())).values
    kth = largest.gather(1, (top_k[:, None] - 1).clamp(min=0))
    return kth.masked_fill(top_k[:, None] == 0, -math.inf)


def _candidate_weights(logits: Tensor, rows: RowSampling, top_k: Tensor) -> tuple[Tensor, Tensor]:
    """Weights of rows whose law lives on their top-k tokens, worked out on those alone.

    Returns:
        weights [N, V] and settled [N] bool: ``False`` for rows without top-k, with a large one, or with ties
        beyond the k-th token; their weights mean nothing.
    """
    width = min(int(top_k.max()), MAX_CANDIDATES) + 1
    values, ids = top_tokens(logits, min(width, logits.shape[1]))
    if rows.top_p is not None:
        values, ids = by_id_within_ties(values, ids)
    rank = torch.arange(values.shape[1], device=logits.device)
    # Entry by entry, where a softmax's sum would round by how many candidates the batch makes it look at.
    weights = _scaled(values - values[:, :1], rows).exp_().masked_fill_(rank >= top_k[:, None], 0.0)
    if rows.min_p is not None:
        zero_below(weights, rows.min_p)
    if rows.top_p is not None:
        cumulative = weights.double().cumsum(-1)
        share = rows.top_p.double().masked_fill(rows.top_p == 1, math.inf)
        weights.masked_fill_(cumulative - weights >= share[:, None] * cumulative[:, -1:], 0.0)
    return torch.zeros_like(logits).scatter_(1, ids, weights), _no_tie_left_out(values, top_k)


def _no_tie_left_out(values: Tensor, top_k: Tensor) -> Tensor:
    width = values.shape[1]
    after = top_k.clamp(1, max(width - 1, 1))[:, None].clamp(max=width - 1)
    following = values.gather(1, after).squeeze(1)
    last = values.gather(1, (after - 1).clamp(min=0)).squeeze(1)
    return (top_k > 0) & (top_k < width) & ((following < last) | (following == -math.inf))
