"""Drafting ahead: what the server does while the targets verify."""

from __future__ import annotations

from collections.abc import Sequence

from foredraft.scheduler.draft_server.ahead_work import AheadWork
from foredraft.scheduler.draft_server.drafting import draft_rows, observe, rewind
from foredraft.scheduler.draft_server.held import Held
from foredraft.scheduler.draft_server.hosted import HostedDraft


class AheadDrafting:
    """Assumes that drafts are accepted whole, guesses the bonus token, and drafts on from there.

    The guess is the draft's likeliest token: no random number goes into it. The draft after it has the keys
    and the law of one that is drawn afterwards.

    ``step`` does one part, the guesses or the drafts, so that nobody waits long for it to end.
    """

    def __init__(self, hosted: HostedDraft) -> None:
        self._hosted = hosted
        self._requests: dict[str, Held] = {}  # with something left to do

    @property
    def has_work(self) -> bool:
        """Whether ``step`` has something to do."""
        return bool(self._requests)

    def add(self, held: Held, wanted: int) -> None:
        """Draft on from what a request has just been given."""
        held.ahead = AheadWork(list(held.drafted), wanted)
        self._requests[held.request_id] = held

    def forget(self, held: Held) -> AheadWork | None:
        """What was assumed for a request is over."""
        self._requests.pop(held.request_id, None)
        work, held.ahead = held.ahead, None
        return work

    def take_back(self, held: Held, followed: Sequence[int]) -> AheadWork | None:
        """The target has committed ``followed``; returns what was assumed, which is over."""
        work = self.forget(held)
        if work is None or not work.begun:
            return work
        if self._hosted.proposer.needs_hidden_states:
            # It has read stand-ins; it reads those tokens again, with what the target has sent.
            rewind(self._hosted, held, held.block_start)
        elif not work.came_true(followed):
            rewind(self._hosted, held, held.block_start + work.num_right(followed))
        return work

    def step(self) -> None:
        """Guess for all that have no guess; if all have one, draft."""
        works = [(held, held.ahead) for held in self._requests.values() if held.ahead is not None]
        unguessed = [(held, work) for held, work in works if not work.guessed]
        if unguessed:
            self._guess(unguessed)
        else:
            self._draft(works)

    def _guess(self, works: list[tuple[Held, AheadWork]]) -> None:
        for _, work in works:
            work.begun = work.guessed = True
        requests, drafted = [held for held, _ in works], [work.assumed for _, work in works]
        observe(self._hosted, requests, drafted)
        guesses = draft_rows(self._hosted, requests, [1] * len(works), drafted, greedy=True)
        for (held, work), guess in zip(works, guesses, strict=True):
            work.assumed += guess.token_ids
            if not guess.token_ids:
                del self._requests[held.request_id]

    def _draft(self, works: list[tuple[Held, AheadWork]]) -> None:
        self._requests = {}
        requests, wanted = [held for held, _ in works], [work.wanted for _, work in works]
        rows = draft_rows(self._hosted, requests, wanted, [work.assumed for _, work in works])
        for (_, work), row in zip(works, rows, strict=True):
            work.ready = row if row.token_ids else None
