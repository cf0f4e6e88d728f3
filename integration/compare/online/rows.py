"""From the blocks of an online comparison to rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from foredraft.integration.compare.online.blocks import EndpointRun, OnlineBlock, speedup
from foredraft.integration.compare.online.client import Reply
from foredraft.integration.compare.online.endpoint import Endpoint
from foredraft.integration.compare.online.model import OnlineOverallRow, OnlineRow
from foredraft.integration.compare.online.plan import OnlineCell, OnlinePlan
from foredraft.integration.compare.online.server_metrics import added
from foredraft.integration.compare.results.figures import percentiles
from foredraft.integration.compare.results.overall import speedup_over, workload_groups
from foredraft.integration.compare.statistics.estimate import RatioEstimate
from foredraft.integration.compare.statistics.verdict import speed_verdict


def online_rows(
    blocks: Sequence[OnlineBlock], plan: OnlinePlan, models: Mapping[str, str]
) -> list[OnlineRow]:
    """Rows cell by cell, the baseline first."""
    rows = []
    for cell in plan.cells():
        own = [block for block in blocks if block.cell == cell]
        for endpoint in plan.endpoints if own else ():
            rows.append(_row(endpoint, models[endpoint.name], cell, own, plan))
    return rows


def online_overall_rows(rows: Sequence[OnlineRow], level: float, min_effect: float) -> list[OnlineOverallRow]:
    """Per server, load and temperature over the workloads, where there are several."""
    return [
        OnlineOverallRow(
            endpoint=group[0].endpoint,
            concurrency=group[0].concurrency,
            arrivals_per_s=group[0].arrivals_per_s,
            recorded_arrivals=group[0].recorded_arrivals,
            temperature=group[0].temperature,
            num_workloads=len(group),
            **speedup_over(group, level, min_effect),
        )
        for group in workload_groups(rows)
    ]


def _row(
    endpoint: Endpoint, model: str, cell: OnlineCell, blocks: Sequence[OnlineBlock], plan: OnlinePlan
) -> OnlineRow:
    runs = [block.runs[endpoint.name] for block in blocks if endpoint.name in block.runs]
    failures = [failure for run in runs for failure in run.failures]
    return OnlineRow(
        endpoint=endpoint.name,
        url=endpoint.url,
        model=model,
        workload=cell.workload,
        concurrency=cell.load.concurrency,
        arrivals_per_s=cell.load.arrivals_per_s,
        recorded_arrivals=cell.load.recorded,
        temperature=cell.temperature,
        **_texts(endpoint.name, cell, blocks, plan),
        num_requests=sum(len(run.served.replies) for run in runs),
        num_failed=len(failures),
        num_refused=sum(run.num_refused for run in runs),
        first_error=failures[0] if failures else None,
        **_speed(endpoint.name, blocks, plan),
        **_times([run for run in runs if not run.failures]),
        **_acceptance(runs),
    )


def _speed(name: str, blocks: Sequence[OnlineBlock], plan: OnlinePlan) -> dict[str, Any]:
    """The fields of ``Speedup``, and the number of blocks behind them."""
    ratio = speedup(name, plan.baseline, blocks) or RatioEstimate(0.0, None, 0, 0)
    is_baseline = name == plan.baseline
    interval = (1.0, 1.0) if is_baseline else ratio.interval(plan.interval_level)
    return {
        "speedup": ratio.ratio,
        "speedup_low": interval[0] if interval else None,
        "speedup_high": interval[1] if interval else None,
        "standard_error": ratio.standard_error,
        "freedom": ratio.freedom,
        "verdict": None if is_baseline else speed_verdict(interval, plan.min_effect),
        "num_blocks": ratio.num_blocks,
    }


def _times(whole: Sequence[EndpointRun]) -> dict[str, Any]:
    """The figures of the blocks in which nothing failed."""
    replies = [reply for run in whole for reply in run.served.replies]
    seconds = sum(run.served.seconds for run in whole)
    told = [run.num_tokens for run in whole if run.num_tokens is not None]
    return {
        "tokens_per_s": sum(told) / seconds if told and len(told) == len(whole) else None,
        "time_to_first_token_s": percentiles([reply.first_token_s for reply in replies]),
        "time_per_output_token_s": percentiles(_per_token(replies)),
        "latency_s": percentiles([latency for run in whole for latency in run.served.latencies]),
    }


def _per_token(replies: Sequence[Reply]) -> list[float]:
    return [
        (reply.seconds - reply.first_token_s) / (reply.num_tokens - 1)
        for reply in replies
        if reply.num_tokens is not None and reply.num_tokens > 1
    ]


def _acceptance(runs: Sequence[EndpointRun]) -> dict[str, Any]:
    """By the server's own count, from the blocks of which it tells."""
    counts = added([run.drafts for run in runs if run.drafts is not None])
    if counts is None or not counts.drafted:
        return {"acceptance_rate": None, "acceptance_length": None, "position_acceptance": []}
    drafts = counts.drafts
    return {
        "acceptance_rate": counts.accepted / counts.drafted,
        "acceptance_length": 1 + counts.accepted / drafts if drafts else None,
        "position_acceptance": [count / drafts for count in counts.per_position] if drafts else [],
    }


def _texts(name: str, cell: OnlineCell, blocks: Sequence[OnlineBlock], plan: OnlinePlan) -> dict[str, Any]:
    """How many texts were compared with the baseline's, and how many were equal."""
    if cell.temperature != 0:
        return {"num_compared_texts": None, "num_equal_texts": None}
    runs = [(block.runs[name], block.runs[plan.baseline]) for block in blocks if name in block.runs]
    pairs = [
        (own.text, plain.text)
        for run, plain_run in runs
        for own, plain in zip(run.served.replies, plain_run.served.replies, strict=True)
        if own.error is None and plain.error is None
    ]
    return {"num_compared_texts": len(pairs), "num_equal_texts": sum(own == plain for own, plain in pairs)}
