"""What a block brought, and what a row of blocks says about the speed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from foredraft.integration.compare.online.load import Served
from foredraft.integration.compare.online.plan import OnlineCell
from foredraft.integration.compare.online.server_metrics import DraftCounts
from foredraft.integration.compare.statistics.estimate import RatioEstimate, estimate_ratio


@dataclass(frozen=True)
class EndpointRun:
    """One block at one server.

    Attributes:
        drafts: by its own count; ``None`` = unknown.
    """

    served: Served
    drafts: DraftCounts | None

    @property
    def failures(self) -> list[str]:
        return [reply.error for reply in self.served.replies if reply.error is not None]

    @property
    def num_refused(self) -> int:
        """Requests that the server does not take; these say nothing about its health."""
        return sum(reply.refused for reply in self.served.replies)

    @property
    def num_tokens(self) -> int:
        return sum(reply.num_tokens for reply in self.served.replies if reply.error is None)

    def speed(self, *, by_latency: bool) -> float:
        """Tokens/s; under arrivals, which fix the tokens/s, requests per second of latency."""
        return 1 / fmean(self.served.latencies) if by_latency else self.num_tokens / self.served.seconds


@dataclass(frozen=True)
class OnlineBlock:
    """A block that the servers have had; a run with a failure is kept and not compared.

    Attributes:
        number: of the block within its cell, from 0.
    """

    cell: OnlineCell
    number: int
    prompt_ids: list[str]
    runs: dict[str, EndpointRun]

    @property
    def seconds(self) -> float:
        return sum(run.served.seconds for run in self.runs.values())

    @property
    def refused(self) -> set[str]:
        """Prompts that one server does not take, so that no server is given them again."""
        return {
            prompt_id
            for run in self.runs.values()
            for prompt_id, reply in zip(self.prompt_ids, run.served.replies, strict=True)
            if reply.refused
        }


def log_ratios(name: str, against: str, blocks: Sequence[OnlineBlock]) -> list[float]:
    """Logarithm of the speed over that of another server, for each block in which neither failed."""
    ratios = []
    for block in blocks:
        own, other = block.runs.get(name), block.runs.get(against)
        if own and other and not own.failures and not other.failures:
            by_latency = block.cell.load.has_arrivals
            ratios.append(math.log(own.speed(by_latency=by_latency) / other.speed(by_latency=by_latency)))
    return ratios


def speedup(name: str, baseline: str, blocks: Sequence[OnlineBlock]) -> RatioEstimate | None:
    """Speed over the baseline's; ``None`` without a block."""
    ratios = log_ratios(name, baseline, blocks)
    return estimate_ratio(ratios) if ratios else None
