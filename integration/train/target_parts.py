"""What training takes from the target model as it was loaded, before it is prepared for serving."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from foredraft.integration.config import Config
from foredraft.integration.devices import resolve_device, resolve_dtype
from foredraft.integration.embedded.fused_model import why_not_fused
from foredraft.integration.errors import UserError
from foredraft.integration.models.fingerprint import fingerprint
from foredraft.integration.models.loading import eos_token_ids, load_model
from foredraft.integration.train.settings import TrainSettings


@dataclass(frozen=True)
class TargetParts:
    """The target, as far as what is trained shares it.

    Attributes:
        embedding: [V, H].
        head_weight: [V, H].
        tied: whether the two are one.
        base: a causal model with as many layers as are trained, float32, the starting weights in it.
        num_layers: of the target.
        max_len: positions the target can take.
    """

    name: str
    fingerprint: str
    eos_ids: frozenset[int]
    embedding: Tensor
    head_weight: Tensor
    tied: bool
    layers_config: dict[str, Any]
    base: Any
    num_layers: int
    max_len: int
    dtype: torch.dtype
    device: torch.device

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding."""
        return self.embedding.shape[0]

    @property
    def hidden_size(self) -> int:
        """Numbers of a hidden state."""
        return self.embedding.shape[1]


def read_target_parts(config: Config, settings: TrainSettings) -> TargetParts:
    """Load the target and keep only what training shares with it.

    Raises:
        UserError: it cannot be loaded, or nothing of its shape can be trained as ``settings`` say.
    """
    device = resolve_device(config)
    dtype = resolve_dtype(config, device)
    loaded = load_model(config.model, dtype, device)
    model = loaded.model
    _check(model, settings)
    num_layers = model.config.num_hidden_layers
    settings = settings.for_target(num_layers)
    first = settings.first_layer(num_layers)
    layers = range(first, first + settings.layers)
    layers_config = _layers_config(model.config, layers)
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    return TargetParts(
        name=loaded.name,
        fingerprint=fingerprint(model.named_parameters()),
        eos_ids=eos_token_ids(model, loaded.tokenizer),
        embedding=embedding.detach(),
        head_weight=head.detach(),
        tied=embedding.data_ptr() == head.data_ptr(),
        layers_config=layers_config.to_diff_dict()
        | {"model_type": layers_config.model_type, "num_hidden_layers": settings.layers},
        base=_base(model, layers_config, layers, settings).to(device),
        num_layers=num_layers,
        max_len=model.config.max_position_embeddings,
        dtype=dtype,
        device=device,
    )


def _check(model: Any, settings: TrainSettings) -> None:
    reason = why_not_fused(model)
    if reason is None and model.get_output_embeddings().bias is not None:
        reason = "its head has a bias"
    if reason is not None:
        raise UserError(f"model: {settings.with_article} for it cannot be trained: {reason}")


def _layers_config(config: Any, layers: range) -> Any:
    """The target's config with ``layers`` only."""
    own = copy.deepcopy(config)
    own.num_hidden_layers = len(layers)
    own.attention_dropout = 0.0
    if getattr(config, "layer_types", None):
        own.layer_types = [config.layer_types[layer] for layer in layers]
    return own


def _base(model: Any, layers_config: Any, layers: range, settings: TrainSettings) -> Any:
    """A model with a vocabulary of one: only its layers, norm and rotary embedding are used."""
    small = copy.deepcopy(layers_config)
    small.vocab_size, small.pad_token_id, small.tie_word_embeddings = 1, None, True
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        base = AutoModelForCausalLM.from_config(small, dtype=torch.float32)
    base.model.norm.load_state_dict(model.model.norm.state_dict())
    if settings.init != "fresh":
        for own, place in zip(base.model.layers, layers, strict=True):
            own.load_state_dict(model.model.layers[place].state_dict())
    return base
