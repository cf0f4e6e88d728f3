"""The requests of a step as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from foredraft.scheduler.speculation.contract import NO_LIMIT, DraftBatch
from foredraft.scheduler.speculation.members import Arms, Member
from foredraft.scheduler.speculation.request_rows import Ints, RequestRows, grown


@dataclass(frozen=True)
class Running:
    """B requests, M members.

    Attributes:
        request_ids: [B].
        rows, rooms, caps: [B], caps = the largest lengths they may be given.
        context_lens: [B], committed tokens.
        arms: [B, M], what each member offers (``Arms``).
        unread: [B, M], tokens a member would have to read first.
    """

    request_ids: Sequence[str]
    rows: Ints
    rooms: Ints
    caps: Ints
    context_lens: Ints
    arms: Ints
    unread: Ints

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Asked:
    """What was asked in a step.

    Attributes:
        arms: by request, the arm it drafts by. Of one that is not asked, the last: an engine may be late
            with what it drafted.
        unread: [M], tokens that each member has to read first.
    """

    arms: Mapping[str, int]
    unread: Sequence[float]


class RequestTable:
    """What is kept of each request between steps: how far each member has read, and the arm asked last."""

    def __init__(self, arms: Arms, members: Sequence[Member]) -> None:
        self._arms = arms
        self._rows = RequestRows()
        self._read = np.zeros((self._rows.size, len(members)), dtype=np.int64)
        most = [NO_LIMIT if one.most_unread is None else one.most_unread for one in members]
        self._most_unread = np.array(most, dtype=np.int64)
        self._asked_arms: dict[str, int] = {}
        self._known_ids: Sequence[str] = ()
        self._known_rows: Ints = np.zeros(0, dtype=np.int64)

    @property
    def size(self) -> int:
        """Rows that arrays with a row per request must have."""
        return self._rows.size

    def running(self, batch: DraftBatch, most: int) -> Running:
        """The requests of a step, none of which may be given more than ``most`` tokens."""
        rows = self.rows_of(batch.request_ids)
        rooms = np.array(batch.rooms, dtype=np.int64)
        context_lens = np.array(batch.context_lens, dtype=np.int64)
        return Running(
            self._known_ids,
            rows,
            rooms,
            np.maximum(np.minimum(np.minimum(rooms, batch.limits), most), 0),
            context_lens,
            self._arms.of(batch.prospects, len(rows)),
            np.minimum(context_lens[:, None] - self._read[rows], self._most_unread),
        )

    def rows_of(self, request_ids: Sequence[str]) -> Ints:
        """Rows of requests; those of the last call are remembered, as a batch changes seldom."""
        if request_ids != self._known_ids:
            self._known_ids, self._known_rows = list(request_ids), self._rows.of(request_ids)
            self._read = grown(self._read, self.size)
        return self._known_rows

    def note_asked(self, now: Running, lengths: Ints, members: Ints) -> Asked:
        """Remember who will have read what.

        What a member will have read is what is committed now; the tokens of the step itself it reads later.
        """
        places = np.flatnonzero(lengths)
        rows, who = now.rows[places], members[places]
        self._read[rows, who] = now.context_lens[places]
        unread: list[float] = np.bincount(who, now.unread[places, who], self._read.shape[1]).tolist()
        names = [now.request_ids[place] for place in places.tolist()]
        self._asked_arms.update(zip(names, now.arms[places, who].tolist(), strict=True))
        return Asked(dict(self._asked_arms), unread)

    def release(self, request_id: str) -> int | None:
        """The row that is free again; ``None`` for a request never seen."""
        row = self._rows.release(request_id)
        if row is not None:
            self._read[row] = 0
            self._asked_arms.pop(request_id, None)
            self._known_ids = ()
        return row

    def __len__(self) -> int:
        return len(self._rows)
