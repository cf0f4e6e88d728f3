"""From a configuration to a running engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foredraft.integration.config import VLLM_PROPOSERS, Config
from foredraft.integration.draft_members import named_members
from foredraft.integration.embedded.controller import build_controller, most_draft_tokens
from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.embedded.draft_loading import LoadedDraft
from foredraft.integration.embedded.drafting_parts import build_proposer, load_parts
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.embedded.exit_backlog import ExitBacklog
from foredraft.integration.embedded.exit_loading import LoadedExit
from foredraft.integration.embedded.forward import ForwardPass
from foredraft.integration.embedded.memory import MemoryPlan, check_free_memory, plan_memory, workspace_bytes
from foredraft.integration.embedded.slot_cache import SlotCache
from foredraft.integration.embedded.state_store import StateStore
from foredraft.integration.embedded.target import Target, load_target
from foredraft.integration.errors import UserError
from foredraft.proposers.early_exit import MOST_UNREAD

if TYPE_CHECKING:
    from foredraft.integration.draft_service.asking import RemoteDraft

__all__ = ["Target", "build_engine", "load_target"]


def build_engine(config: Config, target: Target) -> EmbeddedEngine:
    """An engine with its own cache and proposer.

    Raises:
        UserError: the proposer is not available, its model does not fit the target, or memory does not
            suffice.
    """
    if config.proposer in VLLM_PROPOSERS:
        raise UserError(f"proposer: {config.proposer} is vLLM's own; it needs --engine vllm")
    parts = load_parts(config, target)
    draft, early_exit = parts.draft, parts.early_exit
    plan = plan_memory(config.engine, _bytes_per_position(target, draft, early_exit), target.max_len)
    kept_states = _kept_states(draft, early_exit, plan)
    num_bytes = plan.num_bytes + workspace_bytes(
        plan.num_rows, most_draft_tokens(config, parts), target.vocab_size, drawn=bool(parts.trained)
    )
    if draft is None or not draft.reads_states:  # else they are in the plan
        num_bytes += plan.num_rows * kept_states * _state_bytes(target)
    if early_exit is not None and early_exit.trained_head is not None:
        num_bytes += ExitBacklog.num_bytes(early_exit.trained_head, plan.num_rows, plan.capacity)
    check_free_memory(num_bytes, target.device)
    decoder = SlotDecoder(
        target.prepared,
        plan.num_rows,
        plan.capacity,
        target.max_len,
        target.vocab_size,
        keep_states=kept_states,
        exit_head=early_exit.trained_head if early_exit else None,
    )
    proposer = build_proposer(config, decoder, parts)
    engine = EmbeddedEngine(
        decoder,
        proposer,
        build_controller(config, target, decoder, proposer, parts),
        tokenizer=target.tokenizer,
        eos_ids=target.eos_ids,
        rule=config.verification_rule,
        prefill_chunk=config.engine.prefill_chunk_tokens,
        seed=config.engine.seed,
    )
    if proposer is not None:
        engine.metrics.member_names = list(named_members(config, proposer))
    return engine


def _kept_states(
    draft: LoadedDraft | RemoteDraft | None, early_exit: LoadedExit | None, plan: MemoryPlan
) -> int:
    """Of how many positions the target's last hidden states are kept: a draft may have to catch up on all."""
    if draft is not None and draft.reads_states:
        return plan.capacity
    return MOST_UNREAD if early_exit is not None and early_exit.reads_states else 0


def _bytes_per_position(
    target: Target, draft: LoadedDraft | RemoteDraft | None, early_exit: LoadedExit | None
) -> int:
    """Memory of one position of one row: the target's cache, and what the proposer keeps beside it."""
    num_bytes = _cache_bytes(target.prepared, target.prepared.num_layers)
    if isinstance(draft, LoadedDraft):
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
