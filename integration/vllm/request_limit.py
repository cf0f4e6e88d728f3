"""A request's own limit of draft tokens: ``num_draft_tokens`` in the ``extra_args`` of vLLM's parameters.

vLLM's OpenAI server fills them from ``vllm_xargs`` of a request.
"""

from __future__ import annotations

from typing import Any

from foredraft.integration.config import MAX_DRAFT_TOKENS

LIMIT = "num_draft_tokens"


def limit_of(params: Any) -> int | None:
    """Tokens drafted per step at most for a request; ``None`` = it has no limit of its own.

    Args:
        params: vLLM's ``SamplingParams``.
    """
    return (params.extra_args or {}).get(LIMIT)


def fault_of(params: Any) -> str | None:
    """What is wrong with a request's limit, in one sentence; ``None`` = nothing."""
    limit = limit_of(params)
    if limit is None or (type(limit) is int and 0 <= limit <= MAX_DRAFT_TOKENS):
        return None
    return f"{LIMIT}: should be a whole number from 0 to {MAX_DRAFT_TOKENS}, 0 = no drafts (got {limit!r})"
