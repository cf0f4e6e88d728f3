"""Tokens that the exit head has yet to read: it reads them when it drafts, many at once."""

from __future__ import annotations

from itertools import accumulate

import torch
from torch import Tensor

from foredraft.integration.embedded.attention import Layout, build_layout
from foredraft.integration.embedded.exit_head import TrainedHead
from foredraft.integration.embedded.slot_cache import SlotCache
from foredraft.integration.embedded.state_store import StateStore
from foredraft.proposers.decoder import Tokens, to_device
from foredraft.proposers.early_exit import MOST_UNREAD

ROWS_AT_ONCE = 4
"""Rows that are read in one call at most: as many tokens as a prefill chunk has, whose memory is planned."""


class ExitBacklog:
    """Where the exit head stands in each row, and the states at the exit of what it has yet to read.

    The head's layers look back, so it has to read every token sooner or later; but a call costs about as much
    for one token as for a few dozen. So a row that does not draft is read every ``width`` tokens or so, and
    while nothing drafts the head costs next to nothing. Where all rows of a pass have drafted it is read at
    once: its layout is there, and who drafted will draft again.

    Args:
        states: last hidden states of the target, for a head that reads them; as many positions at least.
    """

    def __init__(self, exit_head: TrainedHead, cache: SlotCache, states: StateStore | None) -> None:
        self.exit_layer = exit_head.exit_layer
        self._exit_head = exit_head
        self._cache = cache
        self._states = states
        self._width = min(MOST_UNREAD, cache.capacity)
        self._at_exit = StateStore(
            cache.num_slots, self._width, exit_head.hidden_size, exit_head.dtype, exit_head.device
        )
        # Leading positions whose keys and values the head has written. Behind the valid length of a row the
        # number means nothing: what is there is written again.
        self._num_read = [0] * cache.num_slots
        self._drafted: set[int] = set()  # rows that drafted since the last pass

    def add(self, tokens: Tokens, layout: Layout, at_exit: Tensor, hidden: Tensor) -> None:
        """After a pass of the whole target, and before its last hidden states ``hidden`` are kept."""
        for row, start in zip(tokens.row_ids, tokens.starts, strict=True):
            self._num_read[row] = min(self._num_read[row], start)
        all_drafted = self._drafted.issuperset(tokens.row_ids)
        self._drafted.clear()
        if not all_drafted and self._fits(tokens):
            self._at_exit.write(tokens.row_ids, tokens.starts, tokens.query_lens, at_exit)
            return
        self.catch_up(tokens)
        self._exit_head.store(at_exit, self._states_before(tokens, hidden), layout)
        self._note_read(tokens)

    def catch_up(self, tokens: Tokens) -> None:
        """Read what lies before ``tokens`` in their rows."""
        rows, firsts, counts = [], [], []
        for row, start in zip(tokens.row_ids, tokens.starts, strict=True):
            num_read = self._num_read[row]
            if num_read < start:
                rows.append(row)
                firsts.append(num_read)
                counts.append(start - num_read)
        for first in range(0, len(rows), ROWS_AT_ONCE):
            some = slice(first, first + ROWS_AT_ONCE)
            self._read(rows[some], firsts[some], counts[some])

    def _read(self, rows: list[int], firsts: list[int], counts: list[int]) -> None:
        at_exit = self._at_exit.read(rows, firsts, counts)
        states = self._states.read(rows, [first - 1 for first in firsts], counts) if self._states else None
        nothing = torch.empty(0, dtype=torch.int64)
        layout = build_layout(self._cache, Tokens(nothing, rows, firsts, counts), at_exit.device)
        self._exit_head.store(at_exit, states, layout)

    def note_drafting(self, tokens: Tokens) -> None:
        """The head has read ``tokens`` in drafting."""
        self._drafted.update(tokens.row_ids)
        self._note_read(tokens)

    def _fits(self, tokens: Tokens) -> bool:
        """Whether a pass can wait. One position less than are kept: of the first, the state before counts."""
        return all(
            start + count - self._num_read[row] < self._width
            for row, start, count in zip(tokens.row_ids, tokens.starts, tokens.query_lens, strict=True)
        )

    def _note_read(self, tokens: Tokens) -> None:
        for row, start, count in zip(tokens.row_ids, tokens.starts, tokens.query_lens, strict=True):
            self._num_read[row] = start + count

    def _states_before(self, tokens: Tokens, hidden: Tensor) -> Tensor | None:
        """[T, H], of each token of a pass the last hidden state one position before; ``None`` if not kept."""
        if self._states is None:
            return None
        before = hidden.roll(1, dims=0)
        first_places = list(accumulate(tokens.query_lens[:-1], initial=0))
        firsts = [start - 1 for start in tokens.starts]
        before[to_device(first_places, hidden.device)] = self._states.read(
            tokens.row_ids, firsts, [1] * len(firsts)
        )
        return before

    @staticmethod
    def num_bytes(exit_head: TrainedHead, num_rows: int, capacity: int) -> int:
        """Memory of the states at the exit."""
        per_position = StateStore.bytes_per_position(exit_head.hidden_size, exit_head.dtype)
        return num_rows * min(MOST_UNREAD, capacity) * per_position
