"""Rejection sampling of drafts that were drawn from a reported distribution: block rule and token rule.

In the comments c is the block rule's running product and h its acceptance probability, as in Sun et al.,
"Block verification accelerates speculative decoding", ICLR 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from foredraft.verifier.blocks import total_mass
from foredraft.verifier.choice import categorical
from foredraft.verifier.draft import DraftProbs
from foredraft.verifier.draft_probs import drafted_token_probs, subtract_draft_probs
from foredraft.verifier.random import Purpose, uniforms

Rule = Literal["block", "token"]


@dataclass(frozen=True)
class DrawnRows:
    """R requests with a drawn draft of at least one token.

    Attributes:
        token_ids: [R, K] int64.
        lengths: [R] int64, 1 to K.
        draft_probs: what the proposer reported.
        entries: [R] int64, the requests' entries in ``draft_probs``.
        target_probs: [n, V] float32, the target's laws, lengths + 1 rows per request.
        first_row: [R] int64, where a request's laws begin in ``target_probs``.
        request_keys, block_starts: [R] int64.
    """

    token_ids: Tensor
    lengths: Tensor
    draft_probs: DraftProbs
    entries: Tensor
    target_probs: Tensor
    first_row: Tensor
    request_keys: Tensor
    block_starts: Tensor


def verify_drawn(drawn: DrawnRows, rule: Rule) -> tuple[Tensor, Tensor]:
    """How many draft tokens each request keeps, and the recovered or bonus token after them.

    Returns:
        accepted [R] and last token [R], both int64.
    """
    if rule == "block":
        accepted, scale = _block_rule(drawn)
    else:
        accepted, scale = _token_rule(drawn)
    return accepted, _last_token(drawn, accepted, scale)


def _block_rule(drawn: DrawnRows) -> tuple[Tensor, Tensor]:
    """Accept the longest prefix whose own test passes: accepted [R] and its c [R] float64."""
    running = running_products(ratios(drawn))
    passed = _accept_noise(drawn) <= block_acceptance(drawn, running)
    length = torch.arange(1, passed.shape[1] + 1, device=passed.device)
    accepted = torch.where(passed, length, 0).amax(1)
    return accepted, running.gather(1, accepted[:, None]).squeeze(1)


def _token_rule(drawn: DrawnRows) -> tuple[Tensor, Tensor]:
    """Accept token by token up to the first failure: accepted [R] and the residual's scale, 1."""
    acceptance = ratios(drawn)
    passed = _accept_noise(drawn) <= acceptance
    return passed.long().cumprod(1).sum(1), torch.ones_like(acceptance[:, 0])


def ratios(drawn: DrawnRows) -> Tensor:
    """target / draft probability of each drafted token, [R, K] float64; 0 past the length.

    0 also where the target's is not positive (or NaN, after the end of a grammar), and where the draft's is
    not: such a token cannot have been drawn, and rejecting it keeps the output inside the target's support.
    """
    place = torch.arange(drawn.token_ids.shape[1], device=drawn.lengths.device)
    inside = place < drawn.lengths[:, None]
    rows = torch.where(inside, drawn.first_row[:, None] + place, drawn.first_row[:, None])
    target = drawn.target_probs[rows, drawn.token_ids.clamp(min=0)]
    draft = drafted_token_probs(drawn.draft_probs, drawn.entries, drawn.token_ids)
    usable = inside & (target > 0) & (draft > 0)
    return torch.where(usable, target.double() / draft.double(), 0.0)


def running_products(ratio: Tensor) -> Tensor:
    """c_0 ... c_K, [R, K + 1]: c_0 = 1, c_i = min(c_(i-1) * ratio_i, 1)."""
    products = [torch.ones_like(ratio[:, 0])]
    for one in ratio.unbind(1):
        products.append((products[-1] * one).clamp(max=1.0))
    return torch.stack(products, dim=1)


def block_acceptance(drawn: DrawnRows, running: Tensor) -> Tensor:
    """h_1 ... h_K, [R, K] float64, from c_0 ... c_K. The last drafted token has h = c; 0 past the length."""
    acceptance = running[:, 1:].clone()
    for offset in range(1, acceptance.shape[1]):
        # Where c is 0, h is too, and the target's logits there may be NaN.
        chosen = ((drawn.lengths > offset) & (running[:, offset] > 0)).nonzero().squeeze(1)
        if len(chosen):
            scale = running[chosen, offset]
            mass = total_mass(residual(drawn, chosen, torch.full_like(chosen, offset), scale))
            denominator = mass + 1 - scale
            acceptance[chosen, offset - 1] = torch.where(denominator == 0, 1.0, mass / denominator)
    return acceptance


def _accept_noise(drawn: DrawnRows) -> Tensor:
    num_rows, num_places = drawn.token_ids.shape
    offsets = torch.arange(num_places, device=drawn.lengths.device).repeat(num_rows)
    keys, starts = (
        values.repeat_interleave(num_places) for values in (drawn.request_keys, drawn.block_starts)
    )
    return uniforms(keys, starts, offsets, Purpose.ACCEPT, 1).view(num_rows, num_places)


def _last_token(drawn: DrawnRows, accepted: Tensor, scale: Tensor) -> Tensor:
    weights = drawn.target_probs.index_select(0, drawn.first_row + accepted)
    rejected = (accepted < drawn.lengths).nonzero().squeeze(1)
    left = residual(drawn, rejected, accepted[rejected], scale[rejected])
    # All zero when the draft equals the target: what is left to draw is then the target itself.
    nonzero = (total_mass(left) > 0).nonzero().squeeze(1)
    weights[rejected[nonzero]] = left[nonzero]
    return categorical(weights, drawn.request_keys, drawn.block_starts, accepted, Purpose.RECOVER)


def residual(drawn: DrawnRows, chosen: Tensor, offset: Tensor, scale: Tensor) -> Tensor:
    """max(scale * target - draft, 0) of the ``chosen`` requests at one ``offset`` each: [n, V] float32."""
    weights = drawn.target_probs.index_select(0, drawn.first_row[chosen] + offset)
    weights.mul_(scale.float()[:, None])
    subtract_draft_probs(weights, drawn.draft_probs, drawn.entries[chosen], offset)
    return weights.clamp_(min=0)
