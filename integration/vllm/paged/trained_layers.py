"""The layers that ``foredraft train`` wrote, built of vLLM's own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from vllm.config import set_current_vllm_config
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.layers.linear import ReplicatedLinear
from vllm.model_executor.model_loader.utils import process_weights_after_loading
from vllm.model_executor.models.llama import LlamaModel
from vllm.model_executor.models.utils import AutoWeightsLoader
from vllm.utils.torch_utils import set_default_torch_dtype

from foredraft.integration.errors import UserError
from foredraft.integration.models.draft_file import HEAD_WEIGHT, DraftFile
from foredraft.integration.vllm.paged.families import layers_config, make_layer, store_keys_values

PREFIX = "foredraft.layers"


class TrainedLayers(nn.Module):
    """Their tensors are named as in the file. Keys and values lie in vLLM's cache, beside the target's.

    Args:
        num_target_layers: the names of these layers go on from there.
    """

    def __init__(self, file: DraftFile, vllm_config: Any, num_target_layers: int) -> None:
        super().__init__()
        config = layers_config(file.layers_config, num_target_layers)
        size, eps = config.hidden_size, config.rms_norm_eps
        self.layers = nn.ModuleList(
            make_layer(config, vllm_config, f"{PREFIX}.{num_target_layers + number}")
            for number in range(config.num_hidden_layers)
        )
        self.norm = RMSNorm(size, eps)
        self.reads_states = file.reads_states
        if file.reads_states:
            self.embed_norm, self.state_norm = RMSNorm(size, eps), RMSNorm(size, eps)
            self.input_proj = ReplicatedLinear(2 * size, size, bias=False)
        self.head = ReplicatedLinear(size, len(file.head_ids), bias=False)

    def forward(self, given: Tensor, states: Tensor | None, positions: Tensor) -> Tensor:
        """What ``head`` takes, [T, H], in vLLM's forward context; arguments as for ``combined``."""
        hidden, residual = self.combined(given, states), None
        for layer in self.layers:
            hidden, residual = layer(positions, hidden, residual)
        normed: Tensor = self.norm(hidden, residual)[0]
        return normed

    def combined(self, given: Tensor, states: Tensor | None) -> Tensor:
        """What goes into the first layer.

        Args:
            given: [T, H], what the layers were trained on: embeddings, or states inside the target.
            states: [T, H], the target's last hidden states, or on drafted tokens what came out of these
                layers; only for layers that read states.
        """
        if not self.reads_states:
            return given
        assert states is not None, "these layers read states"
        parts = (self.embed_norm(given), self.state_norm(states))
        joined: Tensor = self.input_proj(torch.cat(parts, dim=-1))[0]
        return joined

    def store(self, given: Tensor, states: Tensor | None, positions: Tensor, slots: Tensor) -> None:
        """Write the keys and values of tokens that the whole target reads; compute nothing else.

        In vLLM's forward context, where there is more than one layer.
        """
        hidden, residual = self.combined(given, states), None
        for layer in self.layers[:-1]:
            hidden, residual = layer(positions, hidden, residual)
        store_keys_values(
            self.layers[-1], hidden if residual is None else hidden + residual, positions, slots
        )


def load_trained_layers(file: DraftFile, target: Any, vllm_config: Any, named: str) -> TrainedLayers:
    """The layers of a file, on the target's device and in its dtype.

    Args:
        target: the whole vLLM model, for the rows of its embedding that are the head.
        named: option and file, for messages.

    Raises:
        UserError: tensors are missing in the file, or do not fit.
    """
    model_config = vllm_config.model_config
    device = next(target.parameters()).device
    num_layers = model_config.get_total_num_hidden_layers()
    with set_current_vllm_config(vllm_config), set_default_torch_dtype(model_config.dtype), device:
        layers = TrainedLayers(file, vllm_config, num_layers)
    tensors = {name: tensor.to(device, model_config.dtype) for name, tensor in file.tensors.items()}
    if HEAD_WEIGHT not in tensors:
        tensors[HEAD_WEIGHT] = target.embed_input_ids(file.head_ids.to(device)).detach()
    try:
        _load(layers, tensors)
    except (ValueError, AssertionError, RuntimeError) as error:  # vLLM raises either where shapes differ
        reason = str(error).partition("\n")[0]
        raise UserError(f"{named}: its tensors do not fit: {reason or type(error).__name__}") from error
    process_weights_after_loading(layers, model_config, device)
    return layers.eval()


def _load(layers: TrainedLayers, tensors: dict[str, Tensor]) -> None:
    loader = AutoWeightsLoader(layers)
    loaded: Iterable[str] = loader.load_weights(tensors.items(), mapper=LlamaModel.hf_to_vllm_mapper)
    missing = {name for name, _ in layers.named_parameters()} - set(loaded)
    if missing:
        raise ValueError(f"tensors are missing: {', '.join(sorted(missing))}")
