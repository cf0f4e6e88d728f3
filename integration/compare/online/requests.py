"""What the servers are asked: the prompts of workloads, or recorded traffic."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from foredraft.integration.compare.online.client import OnlineRequest
from foredraft.integration.compare.online.load import arrival_times
from foredraft.integration.compare.online.plan import OnlineCell, OnlinePlan, cell_requests, recorded_blocks
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
    """Refuse arrivals of which not one block could go to all servers.

    Raises:
        UserError: the longest block of recorded traffic, or the first one at a rate, takes more than the
            budget.
    """
    for cell in plan.cells():
        needed = _span_s(plan, cell) * len(plan.endpoints)
        if needed > plan.budget_s:
            what, option = ("the recorded traffic", "--traffic-speed")
            if not cell.load.recorded:
                what, option = (f"requests at {cell.load.label}", "--rates")
            raise UserError(
                f"--budget: a block of {what} takes {needed:.0f} s for all servers, more than "
                f"{plan.budget_s:g}; raise it, or {option}"
            )


def _span_s(plan: OnlinePlan, cell: OnlineCell) -> float:
    """Seconds from the first arrival of a block to its last; 0 in a closed loop."""
    if cell.load.recorded:
        blocks = recorded_blocks(plan.requests[cell.workload])
        return max(arrival_times(cell.load, block, plan.seed)[-1] for block in blocks)
    return arrival_times(cell.load, next(cell_requests(plan, cell)), plan.seed)[-1]


def digests(requests: Mapping[str, Sequence[OnlineRequest]]) -> dict[str, str]:
    """Per workload a fingerprint of all that is asked: equal ones, equal requests."""
    return {
        name: hashlib.sha256(repr([asdict(one) for one in asked]).encode()).hexdigest()
        for name, asked in requests.items()
    }
