"""The target model of an engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from foredraft.integration.config import Config
from foredraft.integration.devices import resolve_device, resolve_dtype
from foredraft.integration.embedded.forward import ForwardPass, prepare_model
from foredraft.integration.models.fingerprint import fingerprint
from foredraft.integration.models.loading import eos_token_ids, load_model


@dataclass(frozen=True)
class Target:
    """A loaded target model; engines that only differ in their proposer share it.

    Attributes:
        prepared: its forward pass, fused or plain.
        max_len: positions the model can take.
        fingerprint: which weights these are; a trained draft is bound to them.
    """

    name: str
    prepared: ForwardPass
    tokenizer: Any | None
    eos_ids: frozenset[int]
    vocab_size: int
    max_len: int
    dtype: torch.dtype
    device: torch.device
    fingerprint: str


def load_target(config: Config) -> Target:
    """Load the model a configuration names.

    Raises:
        UserError: it cannot be loaded, or not be run by the embedded engine.
    """
    device = resolve_device(config)
    dtype = resolve_dtype(config, device)
    loaded = load_model(config.model, dtype, device)
    model_config = loaded.model.config
    eos_ids = eos_token_ids(loaded.model, loaded.tokenizer)
    weights = fingerprint(loaded.model.named_parameters())  # before the forward pass takes them apart
    return Target(
        name=loaded.name,
        prepared=prepare_model(loaded.model, config.engine.forward),
        tokenizer=loaded.tokenizer,
        eos_ids=eos_ids,
        vocab_size=model_config.vocab_size,
        max_len=model_config.max_position_embeddings,
        dtype=dtype,
        device=device,
        fingerprint=weights,
    )
