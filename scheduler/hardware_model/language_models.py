"""Language models by name: the sizes that costs hang on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelSize:
    """One decoder.

    Attributes:
        num_params: all weights.
        tied: whether head and embedding are the same weights.
        source: where the numbers are from.
    """

    num_params: float
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    tied: bool
    source: str

    @property
    def params_read(self) -> float:
        """Weights that every pass reads, or multiplies with: all but a look-up table of embeddings."""
        return self.num_params - (0 if self.tied else self.vocab_size * self.hidden_size)

    @property
    def kv_values(self) -> int:
        """Keys and values of one token."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim


def _hub(name: str) -> str:
    return f"config.json and model card of {name} on the Hugging Face hub"


MODELS = {
    "llama-3.1-8b": ModelSize(
        8.03e9, 32, 4096, 32, 8, 128, 128_256, False, _hub("meta-llama/Llama-3.1-8B-Instruct")
    ),
    "llama-3.1-70b": ModelSize(
        70.6e9, 80, 8192, 64, 8, 128, 128_256, False, _hub("meta-llama/Llama-3.1-70B-Instruct")
    ),
    "llama-3.2-1b": ModelSize(
        1.24e9, 16, 2048, 32, 8, 64, 128_256, True, _hub("meta-llama/Llama-3.2-1B-Instruct")
    ),
    "qwen2.5-7b": ModelSize(7.62e9, 28, 3584, 28, 4, 128, 152_064, False, _hub("Qwen/Qwen2.5-7B-Instruct")),
    "qwen2.5-0.5b": ModelSize(0.494e9, 24, 896, 14, 2, 64, 151_936, True, _hub("Qwen/Qwen2.5-0.5B-Instruct")),
    "smollm2-135m": ModelSize(
        134.5e6, 30, 576, 9, 3, 64, 49_152, True, _hub("HuggingFaceTB/SmolLM2-135M-Instruct")
    ),
}
