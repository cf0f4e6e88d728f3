"""The layers that ``foredraft train`` wrote, ready to run: a few of them, their norm, a trimmed head."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from foredraft.integration.embedded.forward import ForwardPass
from foredraft.integration.embedded.fused_model import FUSED_FAMILIES, FusedLayers
from foredraft.integration.embedded.linear import make_linear
from foredraft.integration.errors import UserError
from foredraft.integration.models.draft_file import HEAD_WEIGHT, DraftFile

NO_VOCABULARY = {"vocab_size": 1, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
INPUT_TENSORS = ("embed_norm.weight", "state_norm.weight", "input_proj.weight")


class TrainedLayers(FusedLayers):
    """Between something of the target's that goes in, and the target's head rows of the tokens it knows.

    Takes nothing from the target but calls to its embedding.

    Args:
        named: option and file, for messages.
        first_cache_layer: the cache's layer that belongs to the first of these layers.

    Raises:
        UserError: tensors are missing in the file, or do not fit the target.
    """

    def __init__(
        self,
        file: DraftFile,
        target: ForwardPass,
        device: torch.device,
        dtype: torch.dtype,
        named: str,
        first_cache_layer: int = 0,
    ) -> None:
        tensors = {name: tensor.to(device, dtype) for name, tensor in file.tensors.items()}
        input_tensors = {name: tensors.pop(name) for name in INPUT_TENSORS if name in tensors}
        head_weight = tensors.pop(HEAD_WEIGHT, None)
        try:
            _check_tensors(file, input_tensors, target)
            _check_finite(tensors | input_tensors, dtype)
            model = _skeleton(file.layers_config, tensors)
        except ValueError as error:
            raise UserError(f"{named}: {error}") from None
        super().__init__(model.config, model.model.to(device, dtype), first_cache_layer)
        self.hidden_size: int = model.config.hidden_size
        if head_weight is None:
            head_weight = target.embed(file.head_ids.to(target.device)).to(device, dtype)
        self._head = make_linear(head_weight, None)
        self._input_norms, self._input_proj = None, None
        if file.reads_states:
            self._input_norms = (input_tensors["embed_norm.weight"], input_tensors["state_norm.weight"])
            self._input_proj = make_linear(input_tensors["input_proj.weight"], None)

    def combined(self, given: Tensor, states: Tensor | None) -> Tensor:
        """What goes into the first layer.

        Args:
            given: [T, H], what the layers were trained on: embeddings, or states inside the target.
            states: [T, H], the target's last hidden states, or on drafted tokens what came out of these
                layers; only for layers that read states.
        """
        if self._input_norms is None or self._input_proj is None:
            return given
        assert states is not None, "these layers read states"
        given_norm, state_norm = self._input_norms
        parts = (self._norm(given, given_norm), self._norm(states.to(self.dtype), state_norm))
        return self._input_proj(torch.cat(parts, dim=-1))

    def head(self, hidden: Tensor) -> Tensor:
        """[N, H] -> [N, S]."""
        return self._head(hidden)


def _check_finite(tensors: dict[str, Tensor], dtype: torch.dtype) -> None:
    for name, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{name} has values that {str(dtype).removeprefix('torch.')} cannot hold")


def _check_tensors(file: DraftFile, input_tensors: dict[str, Tensor], target: ForwardPass) -> None:
    """Refuse tensors around the layers that are missing or do not fit."""
    missing = set(INPUT_TENSORS) - set(input_tensors) if file.reads_states else set()
    if missing:
        raise ValueError(f"tensors are missing: {', '.join(sorted(missing))}")
    size = file.layers_config["hidden_size"]
    shapes = [(size,), (size,), (size, 2 * size), (len(file.head_ids), size)]
    for name, needed in zip((*INPUT_TENSORS, HEAD_WEIGHT), shapes, strict=True):
        if name in file.tensors and file.tensors[name].shape != needed:
            raise ValueError(f"{name} {tuple(file.tensors[name].shape)} not {needed}")
    if size != target.hidden_size:
        raise ValueError(f"made for hidden states of size {size}, the target has {target.hidden_size}")


def _skeleton(layers_config: dict[str, Any], tensors: dict[str, Tensor]) -> Any:
    """A transformers model with the draft's layers, and an embedding of one token that nothing uses."""
    family = layers_config["model_type"]
    if family not in FUSED_FAMILIES:
        raise ValueError(f"layers of {family!r}, known are {', '.join(FUSED_FAMILIES)}")
    try:
        config = AutoConfig.for_model(**(layers_config | NO_VOCABULARY))
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval().requires_grad_(False)
    except Exception as error:  # transformers raises many kinds for a bad config
        reason = str(error).partition("\n")[0]
        raise ValueError(f"its layers cannot be built: {reason}") from error
    try:
        report = model.model.load_state_dict(tensors, strict=False)
    except RuntimeError as error:  # shapes that do not fit
        raise ValueError(f"{str(error).splitlines()[-1].strip()}") from None
    missing = [name for name in report.missing_keys if not name.startswith("embed_tokens.")]
    for problem, names in (("missing", missing), ("unknown", report.unexpected_keys)):
        if names:
            raise ValueError(f"tensors are {problem}: {', '.join(sorted(names))}")
    return model
