"""The models of vLLM whose layers can be run one by one, and how layers of their kind are made."""

from __future__ import annotations

from itertools import islice
from typing import Any

from torch import Tensor, nn
from transformers import AutoConfig
from vllm.model_executor.models.llama import LlamaDecoderLayer
from vllm.model_executor.models.qwen2 import Qwen2DecoderLayer
from vllm.model_executor.models.qwen3 import Qwen3DecoderLayer

from foredraft.integration.errors import UserError

NO_VOCABULARY = {"vocab_size": 1, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None}


def embed_and_run(model: Any, input_ids: Tensor, positions: Tensor, num_layers: int) -> tuple[Tensor, Tensor]:
    """[T] -> what the first layers of a Llama-shaped ``model`` add, and what they add it to, [T, H] each."""
    hidden: Any = model.embed_tokens(input_ids)
    residual: Any = None
    for layer in islice(model.layers, num_layers):
        hidden, residual = layer(positions, hidden, residual)
    return hidden, residual


def layers_config(values: dict[str, Any], num_target_layers: int) -> Any:
    """The transformers config of trained layers, as vLLM's layers take it.

    Raises:
        UserError: layers of a kind that is not known here.
    """
    if values["model_type"] not in _MAKERS:
        raise UserError(f"layers of {values['model_type']!r}, vLLM's known here are {', '.join(_MAKERS)}")
    config = AutoConfig.for_model(**(values | NO_VOCABULARY))
    # vLLM numbers layers by their name, and those of a draft go on where the target's end.
    config.target_layer_count = num_target_layers
    return config


def make_layer(config: Any, vllm_config: Any, prefix: str) -> nn.Module:
    """One decoder layer, its attention known to vLLM's cache under ``prefix``."""
    return _MAKERS[config.model_type](config, vllm_config, prefix)


def attention_name(layer: Any) -> str:
    """The name of a decoder layer's attention in vLLM's cache."""
    name: str = layer.self_attn.attn.layer_name
    return name


def store_keys_values(layer: Any, hidden: Tensor, positions: Tensor, slots: Tensor) -> None:
    """Write a decoder layer's keys and values of what goes into it, [T, H], to ``slots``; nothing else."""
    attention = layer.self_attn
    projected, _ = attention.qkv_proj(layer.input_layernorm(hidden))
    sizes = [attention.q_size, attention.kv_size, attention.kv_size]
    query, key, value = projected.split(sizes, dim=-1)
    if hasattr(attention, "k_norm"):
        key = attention.k_norm(key.view(-1, attention.num_kv_heads, attention.head_dim)).flatten(1)
    _, key = attention.rotary_emb(positions, query, key)
    paged = attention.attn
    heads = (-1, paged.num_kv_heads, paged.head_size)
    paged.impl.do_kv_cache_update(paged, key.view(heads), value.reshape(heads), paged.kv_cache, slots)


def _llama(config: Any, vllm_config: Any, prefix: str) -> nn.Module:
    layer: nn.Module = LlamaDecoderLayer(vllm_config, prefix, config)
    return layer


def _qwen2(config: Any, vllm_config: Any, prefix: str) -> nn.Module:
    layer: nn.Module = Qwen2DecoderLayer(config, vllm_config.cache_config, None, prefix)
    return layer


def _qwen3(config: Any, vllm_config: Any, prefix: str) -> nn.Module:
    layer: nn.Module = Qwen3DecoderLayer(config, vllm_config.cache_config, None, prefix)
    return layer


_MAKERS = {"llama": _llama, "mistral": _llama, "qwen2": _qwen2, "qwen3": _qwen3}
