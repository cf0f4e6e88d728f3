"""The target left early, with its own norm and head behind."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from vllm.compilation.backends import set_model_tag
from vllm.compilation.decorators import support_torch_compile

from foredraft.integration.vllm.paged.families import attention_name, embed_and_run


@support_torch_compile(dynamic_arg_dims={"input_ids": 0, "positions": 0})
class FirstLayers(nn.Module):
    """The first layers of a Llama-shaped model and its final norm, compiled apart from the whole model."""

    def __init__(self, *, vllm_config: Any, prefix: str = "", target: Any, exit_layer: int) -> None:
        super().__init__()
        self.target, self.exit_layer = target, exit_layer

    def forward(self, input_ids: Tensor, positions: Tensor) -> Tensor:
        """[T], [T] -> [T, H]."""
        hidden, residual = embed_and_run(self.target, input_ids, positions, self.exit_layer)
        normed: Tensor = self.target.norm(hidden, residual)[0]
        return normed


class OwnExit:
    """See ``decoder.Body``. For models trained to be left early (LayerSkip, arXiv 2404.16710)."""

    def __init__(self, target: Any, exit_layer: int, vllm_config: Any) -> None:
        self._target = target
        with set_model_tag("foredraft"):  # a place of its own among vLLM's compiled modules
            self._layers = FirstLayers(vllm_config=vllm_config, target=target.model, exit_layer=exit_layer)
        self.layer_names = [attention_name(layer) for layer in target.model.layers[:exit_layer]]
        self.max_len: int = vllm_config.model_config.max_model_len
        self.vocab_size: int = vllm_config.model_config.get_vocab_size()

    def run(self, input_ids: Tensor, positions: Tensor, states: Tensor | None) -> Tensor:
        """See ``Body``."""
        hidden: Tensor = self._layers(input_ids, positions)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """[N, H] -> [N, V]."""
        logits: Tensor = self._target.compute_logits(hidden)
        return logits
