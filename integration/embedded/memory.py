"""How many sequences fit: decided once, before anything is allocated."""

from __future__ import annotations

from dataclasses import dataclass

import psutil
import torch

from foredraft.integration.config_sections import EngineOptions
from foredraft.integration.errors import UserError

GB = 1e9


@dataclass(frozen=True)
class MemoryPlan:
    """Cache rows, positions per row, and the bytes they take."""

    num_rows: int
    capacity: int
    num_bytes: int


def plan_memory(options: EngineOptions, bytes_per_position: int, model_max_len: int) -> MemoryPlan:
    """As many rows as the budget holds, up to ``max_num_seqs``; more requests than rows wait their turn.

    Raises:
        UserError: not even one request of the longest length fits, or max_model_len exceeds the model's.
    """
    capacity = options.max_model_len or model_max_len
    if capacity > model_max_len:
        raise UserError(
            f"engine.max_model_len: {capacity} exceeds the {model_max_len} positions of the model"
        )
    budget = int(options.kv_cache_memory_gb * GB)
    num_rows = min(options.max_num_seqs, budget // (capacity * bytes_per_position))
    if num_rows < 1:
        raise UserError(
            f"engine.kv_cache_memory_gb: {options.kv_cache_memory_gb} does not hold one request of "
            f"{capacity} tokens, which needs {capacity * bytes_per_position / GB:.3f}; give more, or set "
            f"engine.max_model_len to at most {budget // bytes_per_position}"
        )
    return MemoryPlan(num_rows, capacity, num_rows * capacity * bytes_per_position)


def check_free_memory(needed: int, device: torch.device) -> None:
    """Refuse a plan the device cannot hold now, instead of running out of memory later.

    Raises:
        UserError: less is free than the cache and the logits of a full batch need.
    """
    on_gpu = device.type == "cuda"
    free = torch.cuda.mem_get_info(device)[0] if on_gpu else psutil.virtual_memory().available
    if needed > free:
        raise UserError(
            f"engine.kv_cache_memory_gb: cache and logits need {needed / GB:.2f} GB, {free / GB:.2f} GB are "
            f"free on {device}; lower engine.kv_cache_memory_gb, engine.max_num_seqs or engine.max_model_len"
        )


def workspace_bytes(num_rows: int, num_draft_tokens: int, vocab_size: int, *, drawn: bool) -> int:
    """A full batch's logits in float32, and as much again twice while they become probabilities.

    Args:
        drawn: whether drafts come with their laws, which are as large as the logits at most.
    """
    return (4 if drawn else 3) * num_rows * (num_draft_tokens + 1) * vocab_size * 4
