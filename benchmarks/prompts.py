"""Prompts of the benchmarks as token ids: built-in workloads, or categories of a JSONL file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foredraft.integration.chat import chat_prompt_ids
from foredraft.integration.workloads import load_workload


def chat_ids(
    tokenizer: Any, workload: str, categories: Sequence[str] | None, limit: int | None
) -> list[list[int]]:
    """First turns of a workload, in the chat template."""
    prompts = load_workload(workload, categories=categories, limit=limit)
    return [chat_prompt_ids(tokenizer, [{"role": "user", "content": prompt.turns[0]}]) for prompt in prompts]
