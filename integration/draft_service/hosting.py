"""From a configuration to what a draft server hosts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig

from foredraft.integration.config import Config
from foredraft.integration.devices import resolve_device, resolve_dtype
from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.embedded.draft_loading import LoadedDraft, draft_file, load_draft, load_model_draft
from foredraft.integration.embedded.fused_model import FusedModel
from foredraft.integration.embedded.memory import check_free_memory, plan_memory
from foredraft.integration.embedded.slot_cache import SlotCache
from foredraft.integration.embedded.state_store import StateStore
from foredraft.integration.embedded.target import load_target
from foredraft.integration.models.builtin import BUILTIN_MODEL
from foredraft.integration.models.checkpoint import read_tokenizer
from foredraft.integration.models.loading import model_folder
from foredraft.proposers.decoder import DraftDecoder
from foredraft.proposers.draft_model import DraftModelProposer
from foredraft.scheduler.draft_server.hosted import HostedDraft
from foredraft.scheduler.draft_server.target_states import StandInDecoder, TargetStates

CHECK_ROWS = 1
"""A row for health checks, beside those of the targets' requests."""


@dataclass(frozen=True)
class HostedFactory:
    """Builds the draft of a configuration where it is called; see ``DraftFactory``.

    ``engine.max_num_seqs`` and ``engine.kv_cache_memory_gb`` are the server's: requests of all its targets
    together, and the memory for them.

    Raises:
        UserError: when called; the draft cannot be loaded, was made for another target, or does not fit.
    """

    config: Config

    def __call__(self) -> HostedDraft:
        return hosted_draft(self.config)


@dataclass(frozen=True)
class _Outline:
    """What is known of a target without loading it; see ``draft_loading.Beside``."""

    tokenizer: Any | None
    vocab_size: int
    device: torch.device
    dtype: torch.dtype


def hosted_draft(config: Config) -> HostedDraft:
    """See ``HostedFactory``."""
    if draft_file(config, config.model) is None:
        beside = _outline(config)
        draft = load_model_draft(config, beside)
        return _hosted(config, draft, beside.vocab_size, None, beside.dtype)
    target = load_target(config)
    draft = load_draft(config, target)
    if isinstance(target.prepared, FusedModel):
        target.prepared.drop_layers()  # a trained draft takes nothing but the embedding
    return _hosted(config, draft, target.vocab_size, target.fingerprint, target.dtype)


def _hosted(
    config: Config, draft: LoadedDraft, vocab_size: int, fingerprint: str | None, state_dtype: torch.dtype
) -> HostedDraft:
    prepared = draft.prepared
    per_position = SlotCache.bytes_per_position(
        prepared.num_layers, prepared.num_kv_heads, prepared.head_dim, prepared.dtype
    )
    if draft.reads_states:
        per_position += StateStore.bytes_per_position(prepared.hidden_size, state_dtype)
    plan = plan_memory(config.engine, per_position, draft.max_len)
    check_free_memory(plan.num_bytes, prepared.device)
    num_rows = plan.num_rows + CHECK_ROWS
    decoder: DraftDecoder = SlotDecoder(prepared, num_rows, plan.capacity, draft.max_len, draft.vocab_size)
    states = None
    if draft.reads_states:
        store = StateStore(num_rows, plan.capacity, prepared.hidden_size, state_dtype, prepared.device)
        states = TargetStates(store)
        decoder = StandInDecoder(decoder, states)
    proposer = DraftModelProposer(
        decoder,
        draft.head_ids,
        reads_states=draft.reads_states,
        min_confidence=config.draft.min_confidence,
    )
    return HostedDraft(proposer, num_rows, plan.capacity, vocab_size, fingerprint, states)


def _outline(config: Config) -> Any:
    """A target as far as a whole model beside it needs it. Of a GGUF file all is loaded."""
    if config.model != BUILTIN_MODEL and Path(config.model).is_file():
        return load_target(config)
    folder = model_folder(config.model)
    model_config = AutoConfig.from_pretrained(folder, local_files_only=True)
    device = resolve_device(config)
    vocab_size: int = model_config.get_text_config().vocab_size
    return _Outline(read_tokenizer(folder), vocab_size, device, resolve_dtype(config, device))
