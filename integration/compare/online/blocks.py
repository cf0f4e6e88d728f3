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
    def num_tokens(self) -> int | None:
        """Of what did not fail; ``None`` where the server does not tell it of each request."""
        counts = [reply.num_tokens for reply in self.served.replies if reply.error is None]
        told = [count for count in counts if count is not None]
        return sum(told) if len(told) == len(counts) else None

    def speed(self, *, by_latency: bool) -> float | None:
        """Tokens/s; under arrivals, which fix the tokens/s, requests per second of latency.

        ``None`` where a request failed, and where the tokens would be needed and are not told.
        """
        if self.failures:
            return None
        if by_latency:
            return 1 / fmean(self.served.latencies)
        return None if self.num_tokens is None else self.num_tokens / self.served.seconds


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

    def speed(self, name: str) -> float | None:
        """Of one server, by what is compared under this load; ``None`` where it has none or took no part."""
        run = self.runs.get(name)
        return None if run is None else run.speed(by_latency=self.cell.load.has_arrivals)

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
    """Logarithm of the speed over that of another server, for each block in which both have one."""
    ratios = []
    for block in blocks:
        own, other = block.speed(name), block.speed(against)
        if own is not None and other is not None:
            ratios.append(math.log(own / other))
    return ratios


def speedup(name: str, baseline: str, blocks: Sequence[OnlineBlock]) -> RatioEstimate | None:
    """Speed over the baseline's; ``None`` without a block."""
    ratios = log_ratios(name, baseline, blocks)
    return estimate_ratio(ratios) if ratios else None
