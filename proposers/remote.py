"""Drafts from a draft server: another process, mostly on another GPU, which may serve many targets."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from foredraft.proposers.base import DraftContext, Proposer, ReleaseReason
from foredraft.proposers.compact_laws import unpack_laws
from foredraft.proposers.remote_channel import DraftChannel
from foredraft.proposers.remote_link import Link, LinkCounts
from foredraft.proposers.remote_messages import (
    DraftAnswer,
    DraftRequest,
    RequestSampling,
    RequestUpdate,
    ServerCard,
    TargetCard,
)
from foredraft.proposers.remote_sampling import samplings
from foredraft.proposers.state_bytes import to_bytes
from foredraft.verifier import PADDING, Draft

MOST_STATES = 512
"""Hidden states sent per step at most; a long prompt's follow in the next ones."""


@dataclass
class _Request:
    """What the server is known to hold of a request.

    Attributes:
        known: so many of its first tokens.
        sampling: how it samples.
        away_until: before this time it is not asked for.
        sent: the sampling of the last message, not yet confirmed.
    """

    handle: int
    known: int = 0
    sampling: RequestSampling | None = None
    away_until: float = 0.0
    sent: RequestSampling | None = None


class RemoteProposer(Proposer):
    """Asks a draft server. Late, lost, dead or busy: this step goes on without a draft.

    Sends of each request what the server does not hold yet, and everything again when the server says so or
    is a new one. The law of every drawn token comes with it.

    Args:
        channel: the way to the server.
        card: of the target; ``state_size`` > 0 if the draft reads its hidden states.
        deadline_s: how long a step waits for its draft.
    """

    def __init__(
        self,
        channel: DraftChannel,
        card: TargetCard,
        *,
        deadline_s: float = 0.05,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.needs_hidden_states = card.state_size > 0
        self._link = Link(channel, card, deadline_s, clock)
        self._card, self._clock = card, clock
        self._requests: dict[str, _Request] = {}
        self._by_handle: dict[int, _Request] = {}
        self._released: list[int] = []  # not yet confirmed by an answer
        self._told = 0  # how many of them the last message has
        self._known_by: str | None = None  # the incarnation that ``known`` is about
        self._handles, self._steps = itertools.count(1), itertools.count(1)
        self._last_step = 0

    @property
    def counts(self) -> LinkCounts:
        """What became of the calls."""
        return self._link.counts

    def attach(self, timeout_s: float) -> ServerCard:
        """Wait for the server; without it the first steps have no drafts.

        Raises:
            TimeoutError, ChannelError: it is not there.
        """
        return self._link.attach(timeout_s)

    def propose(self, context: DraftContext) -> Draft:
        """See ``Proposer.propose``."""
        self._take_note(self._link.settle())
        if self._link.is_open:
            self._forget_another_life()
            request = self._message(context)
            if request.updates:
                answer = self._link.ask(request, wait=any(update.wanted for update in request.updates))
                self._take_note(answer)
                if answer is not None:
                    return self._draft(context, answer)
        return Draft.none(len(context.request_ids), context.sampling.temperature.device)

    def release(self, request_id: str, reason: ReleaseReason) -> None:
        """See ``Proposer.release``. The server hears of it with the next message; of the last one at once."""
        request = self._requests.pop(request_id, None)
        if request is None:
            return
        del self._by_handle[request.handle]
        self._released.append(request.handle)
        if not self._requests and self._link.is_open:
            self._link.ask(self._request([], b""), wait=False)

    def _forget_another_life(self) -> None:
        if self._known_by != self._link.incarnation:
            self._known_by = self._link.incarnation
            self._released, self._told = [], 0
            for request in self._requests.values():
                request.known, request.sampling, request.away_until = 0, None, 0.0

    def _message(self, context: DraftContext) -> DraftRequest:
        """What the server does not know, of the requests that may draft."""
        updates, states, room = [], [], MOST_STATES
        now, each = self._clock(), samplings(context.sampling)
        for place, wanted in enumerate(context.max_draft_tokens):
            request = self._request_of(context.request_ids[place])
            if wanted <= 0 or request.away_until > now:
                continue
            tokens = context.token_ids[place]
            end = len(tokens)
            if self.needs_hidden_states:
                end = min(end, max(request.known, 1) + room)
                first = max(request.known - 1, 0)
                room -= end - 1 - first
                states.append((context.cache_rows[place], first, end - 1 - first))
            updates.append(
                RequestUpdate(
                    request.handle,
                    request.known,
                    tuple(tokens[request.known : end]),
                    wanted if end == len(tokens) else 0,
                    each[place] if each[place] != request.sampling else None,
                )
            )
            request.sent = each[place]
        return self._request(updates, self._states(context, states))

    def _request_of(self, request_id: str) -> _Request:
        request = self._requests.get(request_id)
        if request is None:
            request = self._requests[request_id] = _Request(next(self._handles))
            self._by_handle[request.handle] = request
        return request

    def _states(self, context: DraftContext, wanted: Sequence[tuple[int, int, int]]) -> bytes:
        wanted = [one for one in wanted if one[2] > 0]
        if not wanted:
            return b""
        assert context.hidden_states is not None, "this draft reads the target's hidden states"
        rows, starts, counts = zip(*wanted, strict=True)
        return to_bytes(context.hidden_states.read(rows, starts, counts), self._card.state_dtype)

    def _request(self, updates: Sequence[RequestUpdate], states: bytes) -> DraftRequest:
        self._told, self._last_step = len(self._released), next(self._steps)
        return DraftRequest(
            self._card.target_id,
            self._last_step,
            self._link.deadline_s,
            tuple(updates),
            tuple(self._released),
            states,
        )

    def _take_note(self, answer: DraftAnswer | None) -> None:
        """What the server holds, by an answer to this step or an earlier one."""
        if answer is None:
            return
        if answer.step == self._last_step:
            del self._released[: self._told]
            self._told = 0
        for handle, known in answer.num_known.items():
            request = self._by_handle.get(handle)
            if request is not None:
                request.known = known
                request.sampling = request.sent if known else None
        for handle, seconds in answer.turned_away.items():
            request = self._by_handle.get(handle)
            if request is not None:
                request.away_until = self._clock() + seconds

    def _draft(self, context: DraftContext, answer: DraftAnswer) -> Draft:
        requests = [self._requests[request_id] for request_id in context.request_ids]
        rows = [list(answer.token_ids.get(request.handle, ())) for request in requests]
        width = max(map(len, rows), default=0)
        device = context.sampling.temperature.device
        token_ids = torch.tensor([row + [PADDING] * (width - len(row)) for row in rows], device=device)
        lengths = torch.tensor([len(row) for row in rows], device=device)
        if answer.laws is None:
            return Draft(token_ids.view(len(rows), width).long(), lengths)
        places = {request.handle: row for row, request in enumerate(requests)}
        law_rows = [places[handle] for handle in answer.law_handles]
        return Draft(token_ids.long(), lengths, unpack_laws(answer.laws, law_rows, device))
