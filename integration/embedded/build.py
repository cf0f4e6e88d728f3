"""From a configuration to a running engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from foredraft.integration.config import Config, check_available
from foredraft.integration.devices import resolve_device, resolve_dtype
from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.embedded.forward import ForwardPass, prepare_model
from foredraft.integration.embedded.memory import check_free_memory, logits_bytes, plan_memory
from foredraft.integration.embedded.slot_cache import SlotCache
from foredraft.integration.models.loading import eos_token_ids, load_model
from foredraft.proposers import create_proposer
from foredraft.scheduler.speculation import FixedDraftLength


@dataclass(frozen=True)
class Target:
    """A loaded target model; engines that only differ in their proposer share it.

    Attributes:
        prepared: its forward pass, fused or plain.
        max_len: positions the model can take.
    """

    name: str
    prepared: ForwardPass
    tokenizer: Any | None
    eos_ids: frozenset[int]
    vocab_size: int
    max_len: int
    dtype: torch.dtype
    device: torch.device


def load_target(config: Config) -> Target:
    """Load the model a configuration names.

    Raises:
        UserError: it cannot be loaded, or not be run by the embedded engine.
    """
    check_available(config)
    device = resolve_device(config)
    dtype = resolve_dtype(config, device)
    loaded = load_model(config.model, dtype, device)
    model_config = loaded.model.config
    eos_ids = eos_token_ids(loaded.model, loaded.tokenizer)
    return Target(
        name=loaded.name,
        prepared=prepare_model(loaded.model, config.engine.forward),
        tokenizer=loaded.tokenizer,
        eos_ids=eos_ids,
        vocab_size=model_config.vocab_size,
        max_len=model_config.max_position_embeddings,
        dtype=dtype,
        device=device,
    )


def build_engine(config: Config, target: Target) -> EmbeddedEngine:
    """An engine with its own cache and proposer.

    Raises:
        UserError: the proposer is not available, or memory does not suffice.
    """
    check_available(config)
    prepared = target.prepared
    bytes_per_position = SlotCache.bytes_per_position(
        prepared.num_layers, prepared.num_kv_heads, prepared.head_dim, target.dtype
    )
    plan = plan_memory(config.engine, bytes_per_position, target.max_len)
    workspace = logits_bytes(plan.num_rows, config.num_draft_tokens, target.vocab_size)
    check_free_memory(plan.num_bytes + workspace, target.device)
    options = (
        getattr(config, config.proposer).model_dump() if config.proposer in type(config).model_fields else {}
    )
    return EmbeddedEngine(
        SlotDecoder(prepared, plan.num_rows, plan.capacity, target.max_len, target.vocab_size),
        create_proposer(config.proposer, options),
        FixedDraftLength(config.num_draft_tokens),
        tokenizer=target.tokenizer,
        eos_ids=target.eos_ids,
        rule=config.verification_rule,
        prefill_chunk=config.engine.prefill_chunk_tokens,
        seed=config.engine.seed,
    )
