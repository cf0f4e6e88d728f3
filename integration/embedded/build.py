"""From a configuration to a running engine."""

from __future__ import annotations

from typing import Any

from foredraft.integration.config import VLLM_PROPOSERS, Config
from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.embedded.draft_loading import LoadedDraft, load_draft
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.embedded.exit_decoder import ExitDecoder
from foredraft.integration.embedded.exit_loading import LoadedExit, load_exit
from foredraft.integration.embedded.forward import ForwardPass
from foredraft.integration.embedded.memory import MemoryPlan, check_free_memory, plan_memory, workspace_bytes
from foredraft.integration.embedded.slot_cache import SlotCache
from foredraft.integration.embedded.state_store import StateStore
from foredraft.integration.embedded.target import Target, load_target
from foredraft.integration.errors import UserError
from foredraft.proposers import DraftDecoder, create_proposer
from foredraft.scheduler.speculation import FixedDraftLength

__all__ = ["Target", "build_engine", "load_target"]

DRAFT_TOKENS = 8
"""Drafted per step where neither the configuration nor a draft model says how many: right for ``ngram``."""

EXIT_STATES = 64
"""Positions of a row whose states are kept for an exit head. It reads the newest one; passes verify less."""


def build_engine(config: Config, target: Target) -> EmbeddedEngine:
    """An engine with its own cache and proposer.

    Raises:
        UserError: the proposer is not available, its model does not fit the target, or memory does not
            suffice.
    """
    if config.proposer in VLLM_PROPOSERS:
        raise UserError(f"proposer: {config.proposer} is vLLM's own; it needs --engine vllm")
    draft = load_draft(config, target) if config.proposer == "draft" else None
    early_exit = load_exit(config.early_exit, target) if config.proposer == "early_exit" else None
    trained = draft or early_exit
    num_draft_tokens = config.num_draft_tokens or (trained.num_draft_tokens if trained else DRAFT_TOKENS)
    plan = plan_memory(config.engine, _bytes_per_position(target, draft, early_exit), target.max_len)
    workspace = workspace_bytes(plan.num_rows, num_draft_tokens, target.vocab_size, drawn=trained is not None)
    kept_states = _kept_states(draft, early_exit, plan)
    states = 0 if draft else plan.num_rows * kept_states * _state_bytes(target)  # a draft's are in the plan
    check_free_memory(plan.num_bytes + workspace + states, target.device)
    decoder = SlotDecoder(
        target.prepared,
        plan.num_rows,
        plan.capacity,
        target.max_len,
        target.vocab_size,
        keep_states=kept_states,
        exit_head=early_exit.trained_head if early_exit else None,
    )
    return EmbeddedEngine(
        decoder,
        create_proposer(config.proposer, _proposer_options(config, decoder, draft, early_exit)),
        FixedDraftLength(num_draft_tokens),
        tokenizer=target.tokenizer,
        eos_ids=target.eos_ids,
        rule=config.verification_rule,
        prefill_chunk=config.engine.prefill_chunk_tokens,
        seed=config.engine.seed,
    )


def _proposer_options(
    config: Config, decoder: SlotDecoder, draft: LoadedDraft | None, early_exit: LoadedExit | None
) -> dict[str, Any]:
    trained = draft or early_exit
    if trained is not None:
        return {
            "decoder": _drafting_decoder(decoder, draft, early_exit),
            "head_ids": trained.head_ids,
            "reads_states": trained.reads_states,
            "min_confidence": getattr(config, config.proposer).min_confidence,
        }
    if config.proposer in type(config).model_fields:
        options: dict[str, Any] = getattr(config, config.proposer).model_dump()
        return options
    return {}


def _drafting_decoder(
    decoder: SlotDecoder, draft: LoadedDraft | None, early_exit: LoadedExit | None
) -> DraftDecoder:
    if early_exit is not None:
        return ExitDecoder(decoder, early_exit.head)
    assert draft is not None, "one of the two drafts"
    capacity = min(decoder.capacity, draft.max_len)
    return SlotDecoder(draft.prepared, decoder.num_rows, capacity, draft.max_len, draft.vocab_size)


def _kept_states(draft: LoadedDraft | None, early_exit: LoadedExit | None, plan: MemoryPlan) -> int:
    """Of how many positions the target's last hidden states are kept: a draft may have to catch up on all."""
    if draft is not None and draft.reads_states:
        return plan.capacity
    return EXIT_STATES if early_exit is not None and early_exit.reads_states else 0


def _bytes_per_position(target: Target, draft: LoadedDraft | None, early_exit: LoadedExit | None) -> int:
    """Memory of one position of one row: the target's cache, and what the proposer keeps beside it."""
    num_bytes = _cache_bytes(target.prepared, target.prepared.num_layers)
    if draft is not None:
        num_bytes += _cache_bytes(draft.prepared, draft.prepared.num_layers)
    if draft is not None and draft.reads_states:
        num_bytes += _state_bytes(target)
    if early_exit is not None and early_exit.trained_head is not None:
        num_bytes += _cache_bytes(target.prepared, early_exit.trained_head.num_layers)
    return num_bytes


def _state_bytes(target: Target) -> int:
    return StateStore.bytes_per_position(target.prepared.hidden_size, target.dtype)


def _cache_bytes(prepared: ForwardPass, num_layers: int) -> int:
    return SlotCache.bytes_per_position(num_layers, prepared.num_kv_heads, prepared.head_dim, prepared.dtype)
