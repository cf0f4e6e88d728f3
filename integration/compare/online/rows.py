"""From the blocks of an online comparison to rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from foredraft.integration.compare.online.client import Reply
from foredraft.integration.compare.online.endpoint import Endpoint
from foredraft.integration.compare.online.measure import EndpointRun, OnlineBlock, speedup
from foredraft.integration.compare.online.model import OnlineRow
from foredraft.integration.compare.online.plan import OnlineCell, OnlinePlan
from foredraft.integration.compare.results.figures import percentiles
from foredraft.integration.compare.statistics.estimate import RatioEstimate
from foredraft.integration.compare.statistics.verdict import speed_verdict


def online_rows(
    blocks: Sequence[OnlineBlock], plan: OnlinePlan, models: Mapping[str, str]
) -> list[OnlineRow]:
    """Rows cell by cell, the baseline first."""
    rows = []
    for cell in plan.cells():
        own = [block for block in blocks if block.cell == cell]
        rows += [_row(endpoint, cell, own, plan, models) for endpoint in plan.endpoints if own]
    return rows


def _row(
    endpoint: Endpoint,
    cell: OnlineCell,
    blocks: Sequence[OnlineBlock],
    plan: OnlinePlan,
    models: Mapping[str, str],
) -> OnlineRow:
    baseline = plan.endpoints[0].name
    runs = [block.runs[endpoint.name] for block in blocks if endpoint.name in block.runs]
    whole = [run for run in runs if not run.failures]
    replies = [reply for run in whole for reply in run.served.replies]
    failures = [failure for run in runs for failure in run.failures]
    seconds = sum(run.served.seconds for run in whole)
    ratio = speedup(endpoint.name, baseline, blocks) or RatioEstimate(0.0, None, 0, 0)
    is_baseline = endpoint.name == baseline
    interval = (1.0, 1.0) if is_baseline else ratio.interval(plan.interval_level)
    return OnlineRow(
        endpoint=endpoint.name,
        url=endpoint.url,
        model=models[endpoint.name],
        workload=cell.workload,
        concurrency=cell.load.concurrency,
        arrivals_per_s=cell.load.arrivals_per_s,
        temperature=cell.temperature,
        tokens_per_s=sum(run.num_tokens for run in whole) / seconds if seconds else None,
        speedup=ratio.ratio,
        speedup_low=interval[0] if interval else None,
        speedup_high=interval[1] if interval else None,
        standard_error=ratio.standard_error,
        freedom=ratio.freedom,
        verdict=None if is_baseline else speed_verdict(interval, plan.min_effect),
        time_to_first_token_s=percentiles([reply.first_token_s for reply in replies]),
        time_per_output_token_s=percentiles(_per_token(replies)),
        latency_s=percentiles([latency for run in whole for latency in run.served.latencies]),
        acceptance_rate=_acceptance_rate(runs),
        num_equal_texts=None if cell.temperature else _num_equal(endpoint.name, baseline, blocks),
        num_requests=sum(len(run.served.replies) for run in runs),
        num_failed=len(failures),
        first_error=failures[0] if failures else None,
        num_blocks=ratio.num_blocks,
    )


def _per_token(replies: Sequence[Reply]) -> list[float]:
    return [
        (reply.seconds - reply.first_token_s) / (reply.num_tokens - 1)
        for reply in replies
        if reply.num_tokens > 1
    ]


def _acceptance_rate(runs: Sequence[EndpointRun]) -> float | None:
    known = [run.drafts for run in runs if run.drafts is not None]
    drafted = sum(one[0] for one in known)
    return sum(one[1] for one in known) / drafted if drafted else None


def _num_equal(name: str, baseline: str, blocks: Sequence[OnlineBlock]) -> int:
    pairs = [(block.runs[name], block.runs[baseline]) for block in blocks if name in block.runs]
    return sum(
        own.error is None and plain.error is None and own.text == plain.text
        for run, plain_run in pairs
        for own, plain in zip(run.served.replies, plain_run.served.replies, strict=True)
    )
