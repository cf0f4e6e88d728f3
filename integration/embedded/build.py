"""From a configuration to a running engine."""

from __future__ import annotations

from typing import Any

from foredraft.integration.config import Config, check_available
from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.embedded.draft_loading import LoadedDraft, load_draft
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.embedded.forward import ForwardPass
from foredraft.integration.embedded.memory import MemoryPlan, check_free_memory, plan_memory, workspace_bytes
from foredraft.integration.embedded.slot_cache import SlotCache
from foredraft.integration.embedded.state_store import StateStore
from foredraft.integration.embedded.target import Target, load_target
from foredraft.proposers import Proposer, create_proposer
from foredraft.scheduler.speculation import FixedDraftLength

__all__ = ["Target", "build_engine", "load_target"]

DRAFT_TOKENS = 8
"""Drafted per step where neither the configuration nor a draft model says how many: right for ``ngram``."""


def build_engine(config: Config, target: Target) -> EmbeddedEngine:
    """An engine with its own cache and proposer.

    Raises:
        UserError: the proposer is not available, its model does not fit the target, or memory does not
            suffice.
    """
    check_available(config)
    draft = load_draft(config, target) if config.proposer == "draft" else None
    num_draft_tokens = config.num_draft_tokens or (draft.num_draft_tokens if draft else DRAFT_TOKENS)
    plan = plan_memory(config.engine, _bytes_per_position(target, draft), target.max_len)
    workspace = workspace_bytes(plan.num_rows, num_draft_tokens, target.vocab_size, drawn=draft is not None)
    check_free_memory(plan.num_bytes + workspace, target.device)
    proposer = _proposer(config, draft, plan)
    return EmbeddedEngine(
        SlotDecoder(
            target.prepared,
            plan.num_rows,
            plan.capacity,
            target.max_len,
            target.vocab_size,
            keep_states=proposer is not None and proposer.needs_hidden_states,
        ),
        proposer,
        FixedDraftLength(num_draft_tokens),
        tokenizer=target.tokenizer,
        eos_ids=target.eos_ids,
        rule=config.verification_rule,
        prefill_chunk=config.engine.prefill_chunk_tokens,
        seed=config.engine.seed,
    )


def _proposer(config: Config, draft: LoadedDraft | None, plan: MemoryPlan) -> Proposer | None:
    options: dict[str, Any] = {}
    if draft is not None:
        options = {
            "decoder": SlotDecoder(
                draft.prepared,
                plan.num_rows,
                min(plan.capacity, draft.max_len),
                draft.max_len,
                draft.vocab_size,
            ),
            "head_ids": draft.head_ids,
            "reads_states": draft.reads_states,
            "min_confidence": config.draft.min_confidence,
        }
    elif config.proposer in type(config).model_fields:
        options = getattr(config, config.proposer).model_dump()
    return create_proposer(config.proposer, options)


def _bytes_per_position(target: Target, draft: LoadedDraft | None) -> int:
    """Memory of one position of one row: the target's cache, the draft's, and the states that it reads."""
    num_bytes = _cache_bytes(target.prepared)
    if draft is not None:
        num_bytes += _cache_bytes(draft.prepared)
    if draft is not None and draft.reads_states:
        num_bytes += StateStore.bytes_per_position(target.prepared.hidden_size, target.dtype)
    return num_bytes


def _cache_bytes(prepared: ForwardPass) -> int:
    return SlotCache.bytes_per_position(
        prepared.num_layers, prepared.num_kv_heads, prepared.head_dim, prepared.dtype
    )
