"""The fast forward pass of Llama-shaped layers: projections fused and packed, no module overhead.

Held against the plain path (``plain_model``) in tests. Everything here is a function of ragged tokens:
hidden states are [T, H], whatever rows they belong to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foredraft.integration.embedded.attention import Layout, slot_attention
from foredraft.integration.embedded.linear import Linear, make_linear

FUSED_FAMILIES = ("llama", "mistral", "qwen2", "qwen3")


def why_unsupported_positions(config: Any) -> str | None:
    """Why positions of this model cannot be computed for a mixed batch, or ``None``.

    LongRoPE picks a table by the longest sequence of a pass, dynamic scaling makes one: what shares the pass
    would change the tokens.
    """
    rope = getattr(config, "rope_parameters", None) or {}
    kinds = {rope.get("rope_type")} | {one.get("rope_type") for one in rope.values() if isinstance(one, dict)}
    for kind in ("longrope", "dynamic"):
        if kind in kinds:
            return f"its position embedding ({kind}) depends on the whole batch"
    return None


def why_not_fused(model: Any) -> str | None:
    """The reason a transformers model cannot take the fused path, or ``None``."""
    config = model.config
    if config.model_type not in FUSED_FAMILIES:
        return f"model type {config.model_type!r} is not one of {', '.join(FUSED_FAMILIES)}"
    if config.hidden_act != "silu":
        return f"activation {config.hidden_act!r} is not 'silu'"
    if getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True):
        return "it uses sliding-window attention"
    return None


@dataclass(frozen=True)
class FusedLayer:
    """Weights of one decoder layer; query, key and value in one matrix, gate and up in another."""

    attention_norm: Tensor
    qkv: Linear
    query_norm: Tensor | None
    key_norm: Tensor | None
    attention_out: Linear
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear


class FusedLayers:
    """Decoder layers and the norm behind them. Takes the weights out of a transformers decoder.

    Args:
        config: transformers' config of the layers.
        decoder: has ``layers``, which are left empty, ``norm`` and ``rotary_emb``.
        first_cache_layer: the cache's layer that belongs to the first of these layers.
    """

    why_whole_depth_only: str | None = None

    def __init__(self, config: Any, decoder: Any, first_cache_layer: int = 0) -> None:
        self.num_layers: int = config.num_hidden_layers
        self.num_heads: int = config.num_attention_heads
        self.num_kv_heads: int = config.num_key_value_heads
        self.head_dim: int = decoder.layers[0].self_attn.head_dim
        self.eps: float = config.rms_norm_eps
        self.scale: float = decoder.layers[0].self_attn.scaling
        self._first_cache_layer = first_cache_layer
        self._rotary = decoder.rotary_emb
        self._rotations: tuple[Tensor, Tensor] | None = None
        self._final_norm: Tensor = decoder.norm.weight
        self.device, self.dtype = self._final_norm.device, self._final_norm.dtype
        self._layers = []
        while decoder.layers:
            # One layer at a time, so that the weights are never held twice.
            self._layers.append(_fuse(decoder.layers[0]))
            decoder.layers = nn.ModuleList(decoder.layers[1:])

    def layers(self, hidden: Tensor, layout: Layout, first: int, last: int) -> Tensor:
        """Layers [first, last), then the final norm if the last one is among them."""
        rotation = self._rotation(hidden, layout)
        for index in range(first, last):
            hidden = self._layer(index, hidden, layout, rotation)
        return self.norm(hidden) if last == self.num_layers else hidden

    def norm(self, hidden: Tensor) -> Tensor:
        """The final norm: [N, H] -> [N, H]."""
        return self._norm(hidden, self._final_norm)

    def store_keys_values(self, hidden: Tensor, layout: Layout) -> None:
        """Write the keys and values of all layers for what goes into them, [T, H]; compute nothing else."""
        rotation = self._rotation(hidden, layout)
        last = self.num_layers - 1
        for index in range(last):
            hidden = self._layer(index, hidden, layout, rotation)
        _, key, value = self._query_key_value(self._layers[last], hidden, rotation)
        layout.cache.write(self._first_cache_layer + last, layout.flat_index, key, value)

    def _rotation(self, hidden: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        """Cosine and signed sine of each token's position, [T, 1, D]."""
        if self._rotations is None or len(self._rotations[0]) < layout.cache.capacity:
            # All positions once: with few layers in a pass, working them out again is what costs.
            positions = torch.arange(layout.cache.capacity, device=hidden.device)
            cos, sin = self._rotary(hidden[None], position_ids=positions[None])
            self._rotations = cos[0, :, None].to(hidden.dtype), _signed(sin[0, :, None]).to(hidden.dtype)
        cos, sin = self._rotations
        return cos.index_select(0, layout.positions), sin.index_select(0, layout.positions)

    def _query_key_value(
        self, layer: FusedLayer, hidden: Tensor, rotation: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """[T, H] -> [T, heads, D], and [T, kv heads, D] twice; positions already turned in."""
        cos, sin = rotation
        states = layer.qkv(self._norm(hidden, layer.attention_norm))
        states = states.view(-1, self.num_heads + 2 * self.num_kv_heads, self.head_dim)
        query, key, value = states.split([self.num_heads, self.num_kv_heads, self.num_kv_heads], dim=1)
        if layer.query_norm is None:
            rotated = _rotate(states[:, : self.num_heads + self.num_kv_heads], cos, sin)
            query, key = rotated[:, : self.num_heads], rotated[:, self.num_heads :]
        else:
            query = _rotate(self._norm(query, layer.query_norm), cos, sin)
            key = _rotate(self._norm(key, layer.key_norm), cos, sin)
        return query, key, value

    def _layer(self, index: int, hidden: Tensor, layout: Layout, rotation: tuple[Tensor, Tensor]) -> Tensor:
        layer = self._layers[index]
        query, key, value = self._query_key_value(layer, hidden, rotation)
        attended = slot_attention(layout, self._first_cache_layer + index, query, key, value, self.scale)
        hidden = hidden + layer.attention_out(attended)
        gate, up = layer.gate_up(self._norm(hidden, layer.mlp_norm)).chunk(2, dim=-1)
        return hidden + layer.down(F.silu(gate) * up)

    def _norm(self, hidden: Tensor, weight: Tensor | None) -> Tensor:
        return F.rms_norm(hidden, hidden.shape[-1:], weight, self.eps)


class FusedModel(FusedLayers):
    """A whole transformers model: the layers between its embedding and its head."""

    def __init__(self, model: Any) -> None:
        super().__init__(model.config, model.model)
        self.hidden_size: int = model.config.hidden_size
        self._embedding: Tensor = model.model.embed_tokens.weight
        self._head = make_linear(model.lm_head.weight, model.lm_head.bias)

    def drop_layers(self) -> None:
        """Free the layers, for who needs the embedding alone; nothing but ``embed`` works from then on."""
        self._layers.clear()

    def embed(self, token_ids: Tensor, states: Tensor | None = None) -> Tensor:
        """[T] -> [T, H]."""
        assert states is None, "only a trained draft reads states"
        return F.embedding(token_ids, self._embedding)

    def head(self, hidden: Tensor) -> Tensor:
        """[N, H] -> [N, V]."""
        return self._head(hidden)


def _signed(sin: Tensor) -> Tensor:
    """Fold the sign of the half rotation into the sine: (-sin, sin)."""
    half = sin.shape[-1] // 2
    return torch.cat([-sin[..., :half], sin[..., half:]], dim=-1)


def _rotate(states: Tensor, cos: Tensor, signed_sin: Tensor) -> Tensor:
    """Rotary position embedding of [T, heads, D]; rolling by half a head swaps the two halves."""
    return states * cos + states.roll(states.shape[-1] // 2, dims=-1) * signed_sin


def _fuse(layer: Any) -> FusedLayer:
    attention, mlp = layer.self_attn, layer.mlp
    return FusedLayer(
        attention_norm=layer.input_layernorm.weight,
        qkv=_fuse_linears(attention.q_proj, attention.k_proj, attention.v_proj),
        query_norm=attention.q_norm.weight if hasattr(attention, "q_norm") else None,
        key_norm=attention.k_norm.weight if hasattr(attention, "k_norm") else None,
        attention_out=_fuse_linears(attention.o_proj),
        mlp_norm=layer.post_attention_layernorm.weight,
        gate_up=_fuse_linears(mlp.gate_proj, mlp.up_proj),
        down=_fuse_linears(mlp.down_proj),
    )


def _fuse_linears(*linears: Any) -> Linear:
    """One linear layer whose output is the outputs of ``linears`` side by side."""
    bias = None
    if any(linear.bias is not None for linear in linears):
        zeros = [torch.zeros_like(linear.weight[:, 0]) for linear in linears]
        bias = torch.cat(
            [z if linear.bias is None else linear.bias for linear, z in zip(linears, zeros, strict=True)]
        )
    return make_linear(torch.cat([linear.weight for linear in linears]), bias)
