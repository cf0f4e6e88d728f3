"""How far the draft's law is from the target's, over the tokens the draft knows.

Both laws are products of a hidden state with the same S rows of the target's head. The target's is normalised
over the whole vocabulary, so its probabilities of the S tokens sum to its *mass* <= 1.

- ``kl``: cross entropy -sum_x target_probs(x) log draft_probs(x). Its gradient by the draft's logits is
  mass * draft_probs - target_probs.
- ``tv``: half of sum_x |target_probs(x) - draft_probs(x)|. One minus it is the chance of acceptance at
  temperature 1, but for the mass (Leviathan et al., ICML 2023, section 3.2).

``fused_loss`` works the gradient out on the way forward, a few rows at a time, in the space of the logits:
autograd would keep several [N, S] tensors. ``reference_loss`` says what it must equal.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

LossForm = Literal["kl", "tv"]

ROWS = 64
"""Positions at a time: 64 rows of 8192 float32 logits stay in a core's cache."""


def reference_loss(
    hidden: Tensor, target_states: Tensor, log_normalisers: Tensor, head_weight: Tensor, form: LossForm
) -> Tensor:
    """The loss in plain autograd, float32; arguments as for ``fused_loss``."""
    logits = F.linear(hidden, head_weight).float()
    target_probs = (F.linear(target_states, head_weight).float() - log_normalisers[:, None]).exp()
    if form == "kl":
        return -(target_probs * logits.log_softmax(-1)).sum(-1).mean()
    return 0.5 * (target_probs - logits.softmax(-1)).abs().sum(-1).mean()


def fused_loss(
    hidden: Tensor, target_states: Tensor, log_normalisers: Tensor, head_weight: Tensor, form: LossForm
) -> Tensor:
    """Mean loss over N positions; differentiable by ``hidden`` alone.

    Args:
        hidden: [N, H], the draft's hidden states after its norm.
        target_states: [N, H].
        log_normalisers: [N] float32, over the whole vocabulary.
        head_weight: [S, H]; the products are made in its dtype.

    Returns:
        [] float32.
    """
    loss: Tensor = _FusedLoss.apply(  # type: ignore[no-untyped-call]
        hidden, target_states, log_normalisers, head_weight, form
    )
    return loss


class _FusedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        target_states: Tensor,
        log_normalisers: Tensor,
        head_weight: Tensor,
        form: LossForm,
    ) -> Tensor:
        dtype = head_weight.dtype
        logits = F.linear(hidden.to(dtype), head_weight)
        target_logits = F.linear(target_states.to(dtype), head_weight)
        in_place = _kl_rows if form == "kl" else _tv_rows
        losses = [
            in_place(rows, (target_rows.float() - log_normaliser[:, None]).exp_())
            for rows, target_rows, log_normaliser in zip(
                logits.split(ROWS), target_logits.split(ROWS), log_normalisers.split(ROWS), strict=True
            )
        ]
        # ``logits`` now holds the gradient by the logits.
        ctx.save_for_backward((logits @ head_weight).to(hidden.dtype) / len(hidden))
        return torch.cat(losses).mean()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        (by_hidden,) = ctx.saved_tensors
        return by_hidden * grad, None, None, None, None


def _kl_rows(rows: Tensor, target_probs: Tensor) -> Tensor:
    """Cross entropy of each row; replaces the logits by their gradient."""
    logits = rows.float()
    draft_probs, log_sum = _softmax(logits)
    mass = target_probs.sum(-1)
    losses: Tensor = mass * log_sum - torch.linalg.vecdot(target_probs, logits)
    rows.copy_(draft_probs.mul_(mass[:, None]).sub_(target_probs))
    return losses


def _tv_rows(rows: Tensor, target_probs: Tensor) -> Tensor:
    """Total variation of each row; replaces the logits by their gradient."""
    draft_probs, _ = _softmax(rows.float())
    difference = draft_probs - target_probs
    losses = 0.5 * difference.abs().sum(-1)
    slope = difference.sign_().mul_(0.5)
    slope.sub_(torch.linalg.vecdot(slope, draft_probs)[:, None])
    rows.copy_(slope.mul_(draft_probs))
    return losses


def _softmax(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Probabilities and log of the sum of exponentials."""
    highest = logits.amax(-1, keepdim=True)
    probs = (logits - highest).exp_()
    total = probs.sum(-1, keepdim=True)
    return probs.div_(total), (highest + total.log())[:, 0]
