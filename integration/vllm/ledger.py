"""What the proposer is to know of each request: its committed tokens, and what became of its drafts."""

from __future__ import annotations

import heapq
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

from foredraft.proposers.base import Outcome


@dataclass
class Entry:
    """One request of the runner.

    Attributes:
        token_ids: prompt and output, all committed.
        row: a number of its own, below the largest number of requests that ran at once. vLLM moves requests
            about in its batch; proposers know them by a row that stays.
        block_start, num_drafted: the draft that was last handed to vLLM.
        asked, member: how long it might have been, and which member of the proposer was to draft it.
    """

    token_ids: list[int]
    row: int
    block_start: int = -1
    num_drafted: int = 0
    asked: int = 0
    member: int = 0
    ended: bool = False


class Ledger:
    """Committed tokens as lists that only grow, so that a step costs what it adds."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._free_rows: list[int] = []

    def __len__(self) -> int:
        return len(self._entries)

    def outside(self, batch: Container[str]) -> list[str]:
        """Requests that have left the runner's batch; who took their place there needs their rows."""
        return [request_id for request_id in self._entries if request_id not in batch]

    def forget(self, request_id: str) -> None:
        """Drop a request; unknown ones are ignored."""
        entry = self._entries.pop(request_id, None)
        if entry is not None:
            heapq.heappush(self._free_rows, entry.row)

    def entry(self, request_id: str) -> Entry:
        """A request that ``commit`` has seen."""
        return self._entries[request_id]

    def commit(self, request_id: str, state: Any, emitted: Sequence[int], num_verified: int) -> Outcome:
        """Take up what a step emitted for a request; ``state`` (``CachedRequestState``) already has it."""
        entry = self._entries.get(request_id)
        if entry is None or len(entry.token_ids) + len(emitted) != state.num_tokens:
            known = [*(state.prompt_token_ids or [0] * state.num_prompt_tokens), *state.output_token_ids]
            row = entry.row if entry is not None else self._free_row()
            entry = self._entries[request_id] = Entry(known[: len(known) - len(emitted)], row)
        block_start = len(entry.token_ids)
        entry.token_ids += emitted
        committed = _until_end(state, emitted)
        entry.ended = len(committed) < len(emitted) or _ends(state, emitted[-1], len(state.output_token_ids))
        return Outcome(
            request_id,
            block_start,
            entry.num_drafted if entry.block_start == block_start else 0,
            num_verified,
            min(len(emitted) - 1, len(committed)),
            tuple(committed),
        )

    def _free_row(self) -> int:
        return heapq.heappop(self._free_rows) if self._free_rows else len(self._entries)


def _until_end(state: Any, emitted: Sequence[int]) -> Sequence[int]:
    """The tokens up to the one that ends the request: vLLM's scheduler drops what comes after it."""
    before = len(state.output_token_ids) - len(emitted)
    for place, token in enumerate(emitted[:-1], start=1):
        if _ends(state, token, before + place):
            return emitted[:place]
    return emitted


def _ends(state: Any, token: int, num_output: int) -> bool:
    params = state.sampling_params
    if token == params.eos_token_id or token in (params.stop_token_ids or ()):
        return True
    return params.max_tokens is not None and num_output >= params.max_tokens


def room(entry: Entry, state: Any, max_model_len: int) -> int:
    """How many tokens a request could draft before it must end; the very last one is not drafted."""
    if entry.ended:
        return 0
    room = max_model_len - len(entry.token_ids) - 1
    if state.sampling_params.max_tokens is not None:
        room = min(room, state.sampling_params.max_tokens - len(state.output_token_ids) - 1)
    return room
