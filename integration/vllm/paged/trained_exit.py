"""A trained exit head or a trained draft on its target: what feeds its layers, and how they run."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from vllm.compilation.backends import set_model_tag
from vllm.compilation.decorators import support_torch_compile

from foredraft.integration.vllm.paged.families import attention_name, embed_and_run
from foredraft.integration.vllm.paged.step import Step
from foredraft.integration.vllm.paged.trained_layers import TrainedLayers


@support_torch_compile(dynamic_arg_dims={"input_ids": 0, "positions": 0, "states": 0})
class LayersOnTarget(nn.Module):
    """The target's embedding and first layers, then the trained ones; compiled as one."""

    def __init__(
        self, *, vllm_config: Any, prefix: str = "", target: Any, exit_layer: int, trained: TrainedLayers
    ) -> None:
        super().__init__()
        self.target, self.exit_layer, self.trained = target, exit_layer, trained

    def forward(self, input_ids: Tensor, positions: Tensor, states: Tensor | None) -> Tensor:
        """[T], [T], [T, H] -> [T, H]."""
        if self.exit_layer == 0:
            given = self.target.embed_input_ids(input_ids)
        else:
            hidden, residual = embed_and_run(self.target, input_ids, positions, self.exit_layer)
            given = hidden + residual
        out: Tensor = self.trained(given, states, positions)
        return out


class TrainedExit:
    """See ``decoder.Body``.

    Its layers look back: they have to ``store`` what the whole target reads as well, before they draft.

    Args:
        exit_layer: after how many layers of the target they take over; 0 = from its embedding on.
    """

    def __init__(self, target: Any, exit_layer: int, trained: TrainedLayers, vllm_config: Any) -> None:
        self.exit_layer = exit_layer
        self._target, self._trained = target, trained
        with set_model_tag("foredraft"):  # a place of its own among vLLM's compiled modules
            self._layers = LayersOnTarget(
                vllm_config=vllm_config, target=target.model, exit_layer=exit_layer, trained=trained
            )
        self.trained_names = [attention_name(layer) for layer in trained.layers]
        targets = target.model.layers[:exit_layer] if exit_layer else ()
        self.layer_names = [*(attention_name(layer) for layer in targets), *self.trained_names]
        self.max_len: int = vllm_config.model_config.max_model_len
        self.vocab_size: int = vllm_config.model_config.get_vocab_size()

    def run(self, input_ids: Tensor, positions: Tensor, states: Tensor | None) -> Tensor:
        """See ``Body``."""
        hidden: Tensor = self._layers(input_ids, positions, states)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """[N, H] -> [N, S]."""
        logits: Tensor = self._trained.head(hidden)[0]
        return logits

    def given(self, step: Step) -> Tensor:
        """[T, H], what the trained layers were trained on, of what the target has just read."""
        given = self._target.embed_input_ids(step.input_ids) if self.exit_layer == 0 else step.at_exit
        assert given is not None, "the runner gives out the states at the exit layer"
        return given

    def store(self, given: Tensor, states: Tensor | None, positions: Tensor, slots: Tensor) -> None:
        """Write the trained layers' keys and values of tokens that the target has read.

        In vLLM's forward context, where there is more than one of them.

        Args:
            given: [T, H].
            states: [T, H], the target's last hidden state one position before each token.
            positions, slots: [T] int64.
        """
        self._trained.store(given, states, positions, slots)
