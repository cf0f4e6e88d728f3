"""Figures of one configuration in one cell, from the runs of its blocks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import numpy as np

from foredraft.integration.compare.offline.block_run import BlockRun, DecodeTotals
from foredraft.integration.compare.results.base import Percentiles


def time_split(runs: Sequence[BlockRun]) -> dict[str, float] | None:
    """Shares of the engine's steps: each phase it tells, and the rest (scheduling, bookkeeping, text)."""
    total = sum(run.phase_seconds["total"] for run in runs)
    phases = [phase for phase in runs[0].phase_seconds if phase != "total"]
    if total == 0 or not phases:
        return None
    shares = {phase: sum(run.phase_seconds[phase] for run in runs) / total for phase in phases}
    return shares | {"rest": 1 - sum(shares.values())}


def percentiles(seconds: Sequence[float]) -> Percentiles | None:
    """Median, p95 and p99, interpolated; ``None`` of nothing."""
    if not seconds:
        return None
    median, p95, p99 = (float(value) for value in np.percentile(seconds, [50, 95, 99]))
    return Percentiles(median=median, p95=p95, p99=p99)


def first_token_times(runs: Sequence[BlockRun]) -> Percentiles | None:
    """Time to first token over all requests."""
    return percentiles([times.first_token_s for run in runs for times in run.request_times])


def per_token_times(runs: Sequence[BlockRun]) -> Percentiles | None:
    """Time per output token over all requests."""
    each = [times.per_token_s for run in runs for times in run.request_times]
    return percentiles([seconds for seconds in each if seconds is not None])


def position_acceptance(runs: Sequence[BlockRun]) -> list[float | None]:
    """Per place in the draft: accepted / drafted there (vLLM counts alike); it falls from place to place."""
    verified = _sums([run.verified_per_position for run in runs])
    accepted = _sums([run.accepted_per_position for run in runs])
    pairs = zip(accepted, verified, strict=True)
    return [num_accepted / num_there if num_there else None for num_accepted, num_there in pairs]


def ideal_speedup(runs: Sequence[BlockRun], baseline_runs: Sequence[BlockRun]) -> float | None:
    """Tokens per step over (T_verify + T_draft) / T_1, from steps that read no prompt.

    Both numbers of tokens count the whole batch, so that batches which run empty towards the end of a block
    do so on both sides. ``None`` where one side has no such step, or an engine does not tell its times.
    """
    own, plain = _decode(runs), _decode(baseline_runs)
    if not own.num_steps or not plain.num_tokens or "forward" not in own.seconds:
        return None
    cost = (own.seconds["propose"] + own.seconds["forward"]) / own.num_steps
    plain_cost = plain.seconds["forward"] / plain.num_steps
    if not cost or not plain_cost:
        return None
    gain = (own.num_tokens / own.num_steps) / (plain.num_tokens / plain.num_steps)
    return gain / (cost / plain_cost)


def _decode(runs: Sequence[BlockRun]) -> DecodeTotals:
    total = DecodeTotals()
    for run in runs:
        total.num_steps += run.decode.num_steps
        total.num_tokens += run.decode.num_tokens
        for phase, seconds in run.decode.seconds.items():
            total.seconds[phase] = total.seconds.get(phase, 0.0) + seconds
    return total


def _sums(lists: Sequence[Sequence[int]]) -> list[int]:
    return [sum(column) for column in zip_longest(*lists, fillvalue=0)]
