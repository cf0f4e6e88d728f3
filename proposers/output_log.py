"""What each running request has generated so far, as told by the outcomes."""

from __future__ import annotations

from dataclasses import dataclass, field

from foredraft.proposers.base import Outcome


@dataclass
class _Output:
    block_start: int
    tokens: list[int] = field(default_factory=list)


class OutputLog:
    """Output tokens per request, without gaps: after a missed outcome a request's log starts anew."""

    def __init__(self) -> None:
        self._outputs: dict[str, _Output] = {}

    def __len__(self) -> int:
        return len(self._outputs)

    def expect(self, request_id: str, block_start: int) -> None:
        """The next outcome of this request will begin at ``block_start`` committed tokens."""
        output = self._outputs.get(request_id)
        if output is None or output.block_start != block_start:
            self._outputs[request_id] = _Output(block_start)

    def append(self, outcome: Outcome) -> None:
        """Take up an outcome, unless it is stale or of a request not expected."""
        output = self._outputs.get(outcome.request_id)
        if output is not None and output.block_start == outcome.block_start:
            output.tokens.extend(outcome.committed_ids)
            output.block_start += len(outcome.committed_ids)

    def pop(self, request_id: str) -> list[int]:
        """Forget a request and return its output; empty if unknown."""
        output = self._outputs.pop(request_id, None)
        return output.tokens if output else []
