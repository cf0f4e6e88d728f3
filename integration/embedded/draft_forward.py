"""The forward pass of a trained draft: its own few layers on its target's embedding and head."""

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


class DraftForward(FusedLayers):
    """See ``forward.ForwardPass``. Takes nothing from the target but calls to its embedding.

    Raises:
        UserError: tensors are missing in the file, or do not fit the target.
    """

    def __init__(
        self, draft: DraftFile, target: ForwardPass, device: torch.device, dtype: torch.dtype
    ) -> None:
        tensors = {name: tensor.to(device, dtype) for name, tensor in draft.tensors.items()}
        input_tensors = {name: tensors.pop(name) for name in INPUT_TENSORS if name in tensors}
        head_weight = tensors.pop(HEAD_WEIGHT, None)
        missing = set(INPUT_TENSORS) - set(input_tensors) if draft.reads_states else set()
        if missing:
            raise UserError(f"draft.model: tensors are missing: {', '.join(sorted(missing))}")
        _check_shapes(draft)
        model = _skeleton(draft.layers_config, tensors)
        super().__init__(model.config, model.model.to(device, dtype))
        self.hidden_size: int = model.config.hidden_size
        if self.hidden_size != target.hidden_size:
            sizes = f"{self.hidden_size}, the target has {target.hidden_size}"
            raise UserError(f"draft.model: made for hidden states of size {sizes}")
        self._target = target
        if head_weight is None:
            head_weight = target.embed(draft.head_ids.to(target.device)).to(device, dtype)
        self._head = make_linear(head_weight, None)
        self._input_norms, self._input_proj = None, None
        if draft.reads_states:
            self._input_norms = (input_tensors["embed_norm.weight"], input_tensors["state_norm.weight"])
            self._input_proj = make_linear(input_tensors["input_proj.weight"], None)

    def embed(self, token_ids: Tensor, states: Tensor | None = None) -> Tensor:
        """[T] -> [T, H]; ``states`` [T, H] are the target's, or on drafted tokens this draft's own."""
        embedded = self._target.embed(token_ids.to(self._target.device)).to(self.device, self.dtype)
        if self._input_norms is None or self._input_proj is None:
            return embedded
        assert states is not None, "this draft reads states"
        embed_norm, state_norm = self._input_norms
        parts = (self._norm(embedded, embed_norm), self._norm(states.to(self.dtype), state_norm))
        return self._input_proj(torch.cat(parts, dim=-1))

    def head(self, hidden: Tensor) -> Tensor:
        """[N, H] -> [N, S]."""
        return self._head(hidden)


def _check_shapes(draft: DraftFile) -> None:
    """Refuse tensors around the layers that do not fit them."""
    size = draft.layers_config["hidden_size"]
    shapes = [(size,), (size,), (size, 2 * size), (len(draft.head_ids), size)]
    for name, needed in zip((*INPUT_TENSORS, HEAD_WEIGHT), shapes, strict=True):
        if name in draft.tensors and draft.tensors[name].shape != needed:
            raise UserError(f"draft.model: {name} {tuple(draft.tensors[name].shape)} not {needed}")


def _skeleton(layers_config: dict[str, Any], tensors: dict[str, Tensor]) -> Any:
    """A transformers model with the draft's layers, and an embedding of one token that nothing uses."""
    family = layers_config["model_type"]
    if family not in FUSED_FAMILIES:
        raise UserError(f"draft.model: layers of {family!r}, known are {', '.join(FUSED_FAMILIES)}")
    try:
        config = AutoConfig.for_model(**(layers_config | NO_VOCABULARY))
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval().requires_grad_(False)
    except Exception as error:  # transformers raises many kinds for a bad config
        reason = str(error).partition("\n")[0]
        raise UserError(f"draft.model: its layers cannot be built: {reason}") from error
    try:
        report = model.model.load_state_dict(tensors, strict=False)
    except RuntimeError as error:  # shapes that do not fit
        raise UserError(f"draft.model: {str(error).splitlines()[-1].strip()}") from None
    missing = [name for name in report.missing_keys if not name.startswith("embed_tokens.")]
    for problem, names in (("missing", missing), ("unknown", report.unexpected_keys)):
        if names:
            raise UserError(f"draft.model: tensors are {problem}: {', '.join(sorted(names))}")
    return model
