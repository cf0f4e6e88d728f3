"""One block: every server gets the same requests, in turn."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from foredraft.integration.compare.online.blocks import EndpointRun, OnlineBlock
from foredraft.integration.compare.online.client import OnlineRequest, Reply, send
from foredraft.integration.compare.online.endpoint import Endpoint
from foredraft.integration.compare.online.load import serve_block
from foredraft.integration.compare.online.plan import OnlineCell, OnlinePlan
from foredraft.integration.compare.online.server_metrics import counts_between, read_counts

METRICS_TIMEOUT_S = 5.0
WARM_UP_TOKENS = 8
MIN_BLOCK_S = 10.0
"""What a server has for a block, however little the budget leaves."""


@dataclass(frozen=True)
class Driver:
    """What blocks are measured with.

    Attributes:
        models: name of the model at each server.
    """

    plan: OnlinePlan
    models: Mapping[str, str]

    def warm_up(self, requests: Sequence[OnlineRequest], deadline: float) -> None:
        """A short request each, so that what happens once is not measured.

        Args:
            deadline: as for ``measure``.
        """
        for endpoint in self.plan.endpoints:
            self._send(endpoint, replace(requests[0], max_tokens=WARM_UP_TOKENS), _at_least(deadline))

    def measure(
        self,
        cell: OnlineCell,
        number: int,
        requests: Sequence[OnlineRequest],
        names: Collection[str],
        deadline: float,
    ) -> OnlineBlock:
        """Serve a block with the servers called ``names``, the baseline among them.

        Args:
            deadline: on the clock of ``time.perf_counter``: requests fail that last longer, but each server
                has ``MIN_BLOCK_S``.
        """
        runs = {
            endpoint.name: self._run(endpoint, cell, number, requests, deadline)
            for endpoint in self.plan.turns(cell, number)
            if endpoint.name in names
        }
        ordered = {one.name: runs[one.name] for one in self.plan.endpoints if one.name in runs}
        return OnlineBlock(cell, number, [request.prompt_id for request in requests], ordered)

    def _run(
        self,
        endpoint: Endpoint,
        cell: OnlineCell,
        number: int,
        requests: Sequence[OnlineRequest],
        deadline: float,
    ) -> EndpointRun:
        before = read_counts(endpoint, METRICS_TIMEOUT_S)
        until = _at_least(deadline)

        def send_one(request: OnlineRequest) -> Reply:
            return self._send(endpoint, request, until)

        served = serve_block(send_one, requests, cell.load, self.plan.seed + number)
        after = read_counts(endpoint, METRICS_TIMEOUT_S) if before else None
        return EndpointRun(served, counts_between(before, after))

    def _send(self, endpoint: Endpoint, request: OnlineRequest, until: float) -> Reply:
        timeout_s = min(self.plan.timeout_s, until - time.perf_counter())
        return send(endpoint, self.models[endpoint.name], request, timeout_s)


def _at_least(deadline: float) -> float:
    return max(deadline, time.perf_counter() + MIN_BLOCK_S)
