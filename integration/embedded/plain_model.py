"""The plain forward pass: transformers' own modules, with their attention reading our cache slots.

Works for any causal model of transformers whose attention can be replaced; the reference for the fused path.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface

from foredraft.integration.embedded.attention import Layout, slot_attention
from foredraft.integration.errors import UserError

ATTENTION_NAME = "foredraft_slots"


def _attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """transformers' attention interface: [1, heads, T, D] in, [1, T, heads * D] out."""
    if kwargs.get("softcap") is not None or kwargs.get("s_aux") is not None:
        raise UserError("model: attention with soft-capping or sinks is not supported by the embedded engine")
    scale = kwargs.get("scaling")
    output = slot_attention(
        kwargs["slot_layout"],
        module.layer_idx,
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        query.shape[-1] ** -0.5 if scale is None else scale,
        kwargs.get("sliding_window"),
    )
    return output.view(1, query.shape[2], query.shape[1], query.shape[3]), None


AttentionInterface.register(ATTENTION_NAME, _attention)


def why_not_plain(model: Any) -> str | None:
    """The reason a transformers model cannot run over cache slots, or ``None``."""
    if not getattr(model, "_supports_attention_backend", False):
        return "its attention cannot be replaced (no attention backend support in transformers)"
    kinds = set(getattr(model.config, "layer_types", None) or ())
    stateful = kinds - {"full_attention", "sliding_attention"}
    if stateful or getattr(model, "_is_stateful", False):
        return f"it keeps state that cannot be rolled back by length ({', '.join(sorted(stateful)) or 'recurrent'})"
    return None


class PlainModel:
    """Runs the whole depth of a transformers model at once."""

    def __init__(self, model: Any) -> None:
        config = model.config
        self.num_layers: int = config.num_hidden_layers
        self.num_kv_heads: int = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        self.head_dim: int = (
            getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        )
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        self._model = model
        self._check_head()
        model.set_attn_implementation(ATTENTION_NAME)

    def embed(self, token_ids: Tensor) -> Tensor:
        """[T] -> [T, H]."""
        embedded: Tensor = self._model.get_input_embeddings()(token_ids)
        return embedded

    def layers(self, hidden: Tensor, layout: Layout, first: int, last: int) -> Tensor:
        """All layers and the final norm."""
        if (first, last) != (0, self.num_layers):
            raise ValueError(f"the plain forward runs all {self.num_layers} layers, not [{first}, {last})")
        output = self._model.base_model(
            inputs_embeds=hidden[None],
            position_ids=layout.positions[None],
            use_cache=False,
            slot_layout=layout,
        )
        last_hidden: Tensor = output.last_hidden_state[0]
        return last_hidden

    def head(self, hidden: Tensor) -> Tensor:
        """[N, H] -> [N, V]."""
        logits: Tensor = self._model.get_output_embeddings()(hidden)
        return logits

    def _check_head(self) -> None:
        """Some families scale or cap logits after the projection; then ``head`` would be silently wrong."""
        ids = torch.arange(4, device=self._model.device)[None]
        embedded = self._model.get_input_embeddings()(ids)
        hidden = self._model.base_model(inputs_embeds=embedded, use_cache=False).last_hidden_state
        expected = self._model(ids, use_cache=False).logits[0].float()
        if not torch.allclose(self.head(hidden[0]).float(), expected, rtol=1e-2, atol=1e-2):
            raise UserError(
                f"model: {self._model.config.model_type!r} does more than project to get its logits; "
                "the embedded engine does not support it"
            )
