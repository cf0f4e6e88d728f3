"""Drafts with a small model of its own, beside the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from foredraft.proposers.base import DraftContext, Outcome, ReleaseReason
from foredraft.proposers.batch_draft import batch_draft, sampling_of
from foredraft.proposers.decoder import DraftDecoder, Tokens, to_device
from foredraft.proposers.drafting import DraftingRows, draft_tokens
from foredraft.proposers.token_by_token import TokenByTokenProposer
from foredraft.verifier import Draft

CATCH_UP_TOKENS = 512
"""Unread tokens of long backlogs (prompts, mostly) that are read per step, over all requests: drafting must
not hold up a running batch."""

LONG_BACKLOG = 64


@dataclass
class _Request:
    """What is known of a request.

    Attributes:
        row: its cache row, in the draft's cache as in the target's.
        read: leading positions of the row that hold committed tokens.
        block_start: tokens committed when it last drafted; 0 = never.
    """

    row: int
    read: int = 0
    block_start: int = 0


@dataclass(frozen=True)
class _Plan:
    """One row of this step: the context's request ``place``, the tokens to read, how many to draft."""

    place: int
    request: _Request
    num_unread: int
    wanted: int


class DraftModelProposer(TokenByTokenProposer):
    """The classic draft: a small decoder with its own cache, one row per row of the target's.

    Each step it reads what was committed since it last looked (a whole prompt, the tokens of steps without
    drafting), then drafts token by token. Rejected tokens are rolled back by length. Requests longer than the
    draft's context go on without drafts.

    Args:
        decoder: the small model; the other arguments as for ``TokenByTokenProposer``.
    """

    def __init__(
        self,
        decoder: DraftDecoder,
        head_ids: Tensor | None = None,
        *,
        reads_states: bool = False,
        min_confidence: float = 0.0,
    ) -> None:
        super().__init__(decoder, head_ids, reads_states=reads_states, min_confidence=min_confidence)
        self._requests: dict[str, _Request] = {}
        self._owners: dict[int, _Request] = {}  # of each cache row, who wrote it last

    def propose(self, context: DraftContext) -> Draft:
        """See ``Proposer.propose``. Greedy requests get point masses, the others drawn tokens."""
        plans = self._plan(context)
        drafting = [plan for plan in plans if plan.wanted > 0]
        self._read_only(context, [plan for plan in plans if plan.wanted == 0])
        device = context.sampling.temperature.device
        if not drafting:
            return Draft.none(len(context.request_ids), device)
        places = [plan.place for plan in drafting]
        rows = DraftingRows(
            *self._unread(context, drafting),
            wanted=[plan.wanted for plan in drafting],
            sampling=sampling_of(context.sampling, places, self.decoder.device),
        )
        drafted = draft_tokens(self.decoder, self.head_ids, rows, self._min_confidence)
        for plan in drafting:
            plan.request.read = plan.request.block_start = len(context.token_ids[plan.place])
        return batch_draft(context, places, drafted)

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Keep what was read while drafting and then accepted.

        A draft that reads states read its own there; it reads those tokens again with the target's.
        """
        for outcome in outcomes:
            request = self._requests.get(outcome.request_id)
            if request is None or request.block_start != outcome.block_start or self.needs_hidden_states:
                continue
            accepted = outcome.block_start + min(outcome.num_accepted, len(outcome.committed_ids))
            request.read = min(accepted, self.decoder.valid_len(request.row))
            request.block_start = 0

    def rewind(self, request_id: str, num_tokens: int) -> None:
        """Tokens from ``num_tokens`` on were an assumption, and read as if committed: read them again."""
        request = self._requests.get(request_id)
        if request is not None:
            request.read = min(request.read, num_tokens)
            request.block_start = 0

    def release(self, request_id: str, reason: ReleaseReason) -> None:
        """See ``Proposer.release``. The row is cleared when its next owner arrives."""
        self._requests.pop(request_id, None)

    def _plan(self, context: DraftContext) -> list[_Plan]:
        """What each request does now; those that may not draft are left out."""
        plans = []
        budget = CATCH_UP_TOKENS
        for place, most in enumerate(context.max_draft_tokens):
            num_committed = len(context.token_ids[place])
            wanted = min(most, self._room(num_committed))
            if wanted <= 0:
                continue
            request = self._request(context.request_ids[place], context.cache_rows[place], num_committed)
            if max(context.token_ids[place][request.read :]) >= self.decoder.vocab_size:
                continue  # a target may be padded to more tokens than the draft's embedding has
            backlog = num_committed - request.read
            if backlog > LONG_BACKLOG:
                num_unread = min(backlog, budget)
                budget -= num_unread
            else:
                num_unread = backlog
            if num_unread:
                plans.append(_Plan(place, request, num_unread, wanted if num_unread == backlog else 0))
        return plans

    def _request(self, request_id: str, row: int, num_committed: int) -> _Request:
        """The request's state, its row cut back to what is known to be committed."""
        request = self._requests.get(request_id)
        if request is None or self._owners.get(row) is not request:
            request = self._requests[request_id] = self._owners[row] = _Request(row)
        request.read = min(request.read, num_committed - 1)  # reading the newest token begins the draft
        request.block_start = 0  # an outcome that comes now is of an earlier draft
        self.decoder.truncate(row, min(request.read, self.decoder.valid_len(row)))
        return request

    def _unread(self, context: DraftContext, plans: Sequence[_Plan]) -> tuple[Tokens, Tensor | None]:
        starts = [plan.request.read for plan in plans]
        counts = [plan.num_unread for plan in plans]
        token_ids = [
            token
            for plan, start, count in zip(plans, starts, counts, strict=True)
            for token in context.token_ids[plan.place][start : start + count]
        ]
        device = self.decoder.device
        tokens = Tokens(
            to_device(token_ids, device),
            [plan.request.row for plan in plans],
            starts,
            counts,
        )
        return tokens, self._states(context, tokens)

    def _read_only(self, context: DraftContext, plans: Sequence[_Plan]) -> None:
        """Read a part of long backlogs."""
        if not plans:
            return
        tokens, states = self._unread(context, plans)
        self.decoder.forward(tokens, states=states)
        for plan in plans:
            plan.request.read += plan.num_unread
