"""From a configuration to a running engine."""

from __future__ import annotations

from typing import Any

from foredraft.integration.config import AUTO, Config, check_available, fixed_draft_tokens
from foredraft.integration.embedded.calibration import pass_seconds
from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.embedded.draft_loading import LoadedDraft, load_draft
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.embedded.forward import ForwardPass
from foredraft.integration.embedded.memory import MemoryPlan, check_free_memory, plan_memory, workspace_bytes
from foredraft.integration.embedded.slot_cache import SlotCache
from foredraft.integration.embedded.state_store import StateStore
from foredraft.integration.embedded.target import Target, load_target
from foredraft.proposers import Proposer, create_proposer
from foredraft.proposers.draft_model import DraftModelProposer
from foredraft.scheduler import AdaptiveDraftLength, DraftLengthController, FixedDraftLength

__all__ = ["Target", "build_engine", "load_target"]

DRAFT_TOKENS = 8
"""Drafted per step where neither the configuration nor a draft model says how many: right for ``ngram``."""

AUTO_DRAFT_TOKENS = 16
AUTO_MODEL_DRAFT_TOKENS = 8
"""The most that ``num_draft_tokens: auto`` chooses; the second where every token drafted costs a pass."""


def build_engine(config: Config, target: Target) -> EmbeddedEngine:
    """An engine with its own cache and proposer.

    Raises:
        UserError: the proposer is not available, its model does not fit the target, or memory does not
            suffice.
    """
    check_available(config)
    draft = load_draft(config, target) if config.proposer == "draft" else None
    num_draft_tokens = _num_draft_tokens(config, draft)
    plan = plan_memory(config.engine, _bytes_per_position(target, draft), target.max_len)
    workspace = workspace_bytes(plan.num_rows, num_draft_tokens, target.vocab_size, drawn=draft is not None)
    check_free_memory(plan.num_bytes + workspace, target.device)
    proposer = _proposer(config, draft, plan)
    decoder = SlotDecoder(
        target.prepared,
        plan.num_rows,
        plan.capacity,
        target.max_len,
        target.vocab_size,
        keep_states=proposer is not None and proposer.needs_hidden_states,
    )
    return EmbeddedEngine(
        decoder,
        proposer,
        _controller(config, target, decoder, proposer, num_draft_tokens),
        tokenizer=target.tokenizer,
        eos_ids=target.eos_ids,
        rule=config.verification_rule,
        prefill_chunk=config.engine.prefill_chunk_tokens,
        seed=config.engine.seed,
    )


def _num_draft_tokens(config: Config, draft: LoadedDraft | None) -> int:
    """Tokens drafted per step at most."""
    if config.num_draft_tokens == AUTO:
        return AUTO_MODEL_DRAFT_TOKENS if draft else AUTO_DRAFT_TOKENS
    return fixed_draft_tokens(config) or (draft.num_draft_tokens if draft else DRAFT_TOKENS)


def _controller(
    config: Config, target: Target, decoder: SlotDecoder, proposer: Proposer | None, num_draft_tokens: int
) -> DraftLengthController:
    if config.num_draft_tokens != AUTO or proposer is None:
        return FixedDraftLength(num_draft_tokens)
    if not config.engine.calibrate:
        return AdaptiveDraftLength(num_draft_tokens)
    name = f"{target.fingerprint} {target.dtype} {config.engine.forward}"
    draft_step_s = 0.0
    if isinstance(proposer, DraftModelProposer) and not proposer.needs_hidden_states:
        draft_step_s = pass_seconds(proposer.decoder, f"draft {config.draft.model} of {name}")[1]
    return AdaptiveDraftLength(num_draft_tokens, pass_seconds(decoder, name), draft_step_s)


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
