"""What the servers are asked: the prompts of workloads, or recorded traffic."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from foredraft.integration.compare.online.client import OnlineRequest
from foredraft.integration.compare.online.plan import OnlinePlan, recorded_blocks
from foredraft.integration.errors import UserError
from foredraft.integration.traffic.records import TrafficRecord
from foredraft.integration.traffic.synthetic import synthetic_text
from foredraft.integration.workloads import WorkloadPrompt


def prompt_requests(prompts: Sequence[WorkloadPrompt], max_tokens: int) -> list[OnlineRequest]:
    """The first turn of each prompt; the temperature is left to the cell."""
    return [
        OnlineRequest(prompt.id, (("user", prompt.turns[0]),), max_tokens, temperature=0.0, seed=0)
        for prompt in prompts
    ]


def traffic_requests(
    records: Sequence[TrafficRecord], max_tokens: int, temperature: float, speed: float
) -> list[OnlineRequest]:
    """Recorded requests; those without a text get a synthetic one of about their length.

    Args:
        max_tokens: where a record does not say; so it is for ``temperature``.
        speed: how much faster than recorded they arrive.
    """
    requests = []
    for number, record in enumerate(records):
        messages = tuple((message.role, message.content) for message in record.messages or ())
        if record.prompt is None and not messages:
            messages = (("user", synthetic_text(record.prompt_tokens or 1, f"traffic {number}")),)
        requests.append(
            OnlineRequest(
                prompt_id=str(number),
                messages=messages,
                max_tokens=record.max_tokens or max_tokens,
                temperature=temperature if record.temperature is None else record.temperature,
                seed=0,
                prompt=record.prompt,
                arrival_s=None if record.arrival_s is None else record.arrival_s / speed,
            )
        )
    return requests


def check_fits_budget(plan: OnlinePlan) -> None:
    """Refuse recorded traffic of which not one block could be replayed to all servers.

    Raises:
        UserError: its longest block takes more than the budget.
    """
    if not any(load.recorded for load in plan.loads):
        return
    longest = max(span_s(block) for requests in plan.requests.values() for block in recorded_blocks(requests))
    needed = longest * len(plan.endpoints)
    if needed > plan.budget_s:
        raise UserError(
            f"--budget: a block of the recorded traffic takes {needed:.0f} s for all servers, more than "
            f"{plan.budget_s:g}; raise it, or --traffic-speed"
        )


def span_s(requests: Sequence[OnlineRequest]) -> float:
    """Seconds from the first recorded arrival to the last."""
    times = [request.arrival_s or 0.0 for request in requests]
    return max(times) - min(times)


def digests(requests: Mapping[str, Sequence[OnlineRequest]]) -> dict[str, str]:
    """Per workload a fingerprint of all that is asked: equal ones, equal requests."""
    return {
        name: hashlib.sha256(repr([asdict(one) for one in asked]).encode()).hexdigest()
        for name, asked in requests.items()
    }
