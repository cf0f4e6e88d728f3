"""The table of model families whose layers can be run one by one, and what their forward passes differ in."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Family:
    """Names of the parts of a transformers base model, as its ``forward`` uses them.

    The embedding and the head are not here: ``get_input_embeddings`` and ``get_output_embeddings`` find them
    in any family, and the scale of Gemma's embeddings is part of the embedding module.

    Attributes:
        layers, norm: the list of layers, and the norm behind the last one.
        rotary: makes the (cos, sin) that every layer takes as ``position_embeddings``.
        rotary_by_layer_type: ``rotary`` has one table for each of ``config.layer_types``.
        learned_positions: embedding of positions, added in front of layer 0.
    """

    layers: str
    norm: str
    rotary: str | None = None
    rotary_by_layer_type: bool = False
    learned_positions: str | None = None


LLAMA_SHAPED = Family(layers="layers", norm="norm", rotary="rotary_emb")
FAMILIES = {
    "llama": LLAMA_SHAPED,
    "mistral": LLAMA_SHAPED,
    "qwen2": LLAMA_SHAPED,
    "qwen3": LLAMA_SHAPED,
    "gemma": LLAMA_SHAPED,
    "gemma2": LLAMA_SHAPED,
    "gemma3_text": replace(LLAMA_SHAPED, rotary_by_layer_type=True),
    "gpt2": Family(layers="h", norm="ln_f", learned_positions="wpe"),
}
