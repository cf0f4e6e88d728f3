"""The two ways a transformers model runs over cache slots, and the choice between them."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from foredraft.integration.embedded.attention import Layout
from foredraft.integration.embedded.fused_model import (
    FusedModel,
    why_not_fused,
    why_unsupported_positions,
)
from foredraft.integration.errors import UserError


class ForwardPass(Protocol):
    """A model as functions of ragged tokens: hidden states are [T, H], whatever rows they belong to.

    Attributes:
        why_whole_depth_only: the reason why ``layers`` runs all layers or none and ``norm`` not at all, or
            ``None``.
    """

    num_layers: int
    num_kv_heads: int
    head_dim: int
    hidden_size: int
    device: torch.device
    dtype: torch.dtype
    why_whole_depth_only: str | None

    def embed(self, token_ids: Tensor, states: Tensor | None = None) -> Tensor:
        """[T] -> [T, H]; ``states`` [T, H] only for a trained draft that reads its target's."""
        ...

    def layers(self, hidden: Tensor, layout: Layout, first: int, last: int) -> Tensor:
        """Layers [first, last), then the final norm if the last one is among them.

        Raises:
            ValueError: a part of the depth, where ``why_whole_depth_only`` is set.
        """
        ...

    def norm(self, hidden: Tensor) -> Tensor:
        """The final norm alone, [N, H] -> [N, H], for states of a layer before the last.

        Raises:
            ValueError: ``why_whole_depth_only`` is set.
        """
        ...

    def head(self, hidden: Tensor) -> Tensor:
        """[N, H] -> logits [N, V]."""
        ...


def prepare_model(model: Any, forward: str = "auto") -> ForwardPass:
    """Choose the forward pass of a transformers model: ``fused``, ``plain``, or ``auto`` (fused if it can).

    The model object belongs to the result from then on; decoders share the result.

    Raises:
        UserError: the model cannot run that way; the message says why.
        ValueError: the model object was prepared before.
    """
    if getattr(model, "foredraft_prepared", False):
        # Its layers are gone or their attention is replaced: preparing again would give an empty model.
        raise ValueError("the model was prepared before; share what prepare_model returned then")
    model.foredraft_prepared = True
    reason = why_unsupported_positions(model.config)
    if reason is not None:
        raise UserError(_cannot(model, reason))
    reason = why_not_fused(model)
    if forward == "fused" and reason is not None:
        raise UserError(f"engine.forward: 'fused' cannot run this model: {reason}; use 'plain' or 'auto'")
    if forward != "plain" and reason is None:
        return FusedModel(model)
    from foredraft.integration.embedded.plain_model import PlainModel, why_not_plain

    reason = why_not_plain(model)
    if reason is not None:
        raise UserError(_cannot(model, reason))
    return PlainModel(model)


def _cannot(model: Any, reason: str) -> str:
    return f"model: the embedded engine cannot run {model.config.model_type!r}: {reason}"
