"""Asking all replicas of all variants for their metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from foredraft.scheduler.serve.metrics_pages import ReplicaPage

TIMEOUT_S = 5.0


async def replica_pages(handles: Mapping[str, Any]) -> list[ReplicaPage]:
    """Their pages; those of replicas that do not answer are left out."""
    found = await asyncio.gather(*(_pages_of(name, handle) for name, handle in handles.items()))
    return [page for pages in found for page in pages]


async def _pages_of(variant: str, handle: Any) -> list[ReplicaPage]:
    response = handle.broadcast("metrics")
    try:
        answers = await asyncio.wait_for(
            response.results_async(timeout_s=TIMEOUT_S, return_exceptions=True), 2 * TIMEOUT_S
        )
    except TimeoutError:
        return []
    return [ReplicaPage(variant, *answer) for answer in answers if isinstance(answer, tuple)]
