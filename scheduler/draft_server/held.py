"""The requests that a draft server knows: who they belong to, their rows, how long they are kept."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

from foredraft.proposers.remote_messages import RequestSampling
from foredraft.scheduler.draft_server.ahead_work import AheadWork


@dataclass
class Held:
    """One request of one target.

    Attributes:
        request_id: what the hosted proposer calls it.
        row: of the proposer's cache.
        token_ids: committed tokens.
        block_start, drafted: what was drafted last, and how many tokens were committed then.
        ahead: what goes on from there, on an assumption.
    """

    request_id: str
    row: int
    sampling: RequestSampling
    token_ids: list[int] = field(default_factory=list)
    block_start: int = 0
    drafted: list[int] = field(default_factory=list)
    ahead: AheadWork | None = None


class Books:
    """Requests by target and handle.

    Args:
        rows: cache rows to give away.
        lease_s: a target that is silent for so long is taken for dead.
        let_go: called with each request whose row is free again.
    """

    def __init__(self, rows: range, lease_s: float, let_go: Callable[[Held], None]) -> None:
        self._free = list(rows)
        self._lease_s = lease_s
        self._let_go = let_go
        self._targets: dict[str, dict[int, Held]] = {}
        self._last_seen: dict[str, float] = {}

    def __len__(self) -> int:
        return sum(map(len, self._targets.values()))

    def seen(self, target_id: str, now: float) -> None:
        """Renew a target's lease. May be called from any thread."""
        self._last_seen[target_id] = now

    def find(self, target_id: str, handle: int) -> Held | None:
        """A request that is known."""
        return self._targets.get(target_id, {}).get(handle)

    def open(self, target_id: str, handle: int, sampling: RequestSampling) -> Held | None:
        """A row for a new request, ``None`` if all are taken."""
        if not self._free:
            return None
        held = Held(f"{target_id}/{handle}", heapq.heappop(self._free), sampling)
        self._targets.setdefault(target_id, {})[handle] = held
        return held

    def close(self, target_id: str, handle: int) -> None:
        """Forget a request; unknown ones are ignored."""
        held = self._targets.get(target_id, {}).pop(handle, None)
        if held is not None:
            heapq.heappush(self._free, held.row)
            self._let_go(held)

    def close_requests(self) -> None:
        """Forget all requests, but not the targets."""
        for target_id, requests in self._targets.items():
            for handle in list(requests):
                self.close(target_id, handle)

    def close_target(self, target_id: str) -> None:
        """Forget a target and all its requests."""
        for handle in list(self._targets.get(target_id, {})):
            self.close(target_id, handle)
        self._targets.pop(target_id, None)
        self._last_seen.pop(target_id, None)

    def expire(self, now: float) -> list[str]:
        """Forget the targets whose lease has run out, and return them."""
        leases = list(self._last_seen.items())  # a copy: targets come in other threads
        gone = [target_id for target_id, seen in leases if now - seen > self._lease_s]
        for target_id in gone:
            self.close_target(target_id)
        return gone
