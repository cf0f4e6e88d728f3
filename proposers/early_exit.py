"""Drafts with the first layers of the target itself, on the target's own cache rows."""

from __future__ import annotations

from collections.abc import Sequence

from foredraft.proposers.base import DraftContext, ReleaseReason
from foredraft.proposers.batch_draft import batch_draft, sampling_of
from foredraft.proposers.decoder import Tokens, to_device
from foredraft.proposers.drafting import DraftedRows, DraftingRows, draft_tokens
from foredraft.proposers.token_by_token import TokenByTokenProposer
from foredraft.verifier import Draft

MOST_UNREAD = 64
"""Tokens of a request that a head with layers of its own may lag behind the target."""


class EarlyExitProposer(TokenByTokenProposer):
    """Self-speculation: leave the target after a few layers, guess, go on with the guess.

    Drafted tokens are written into the target's rows behind what is committed; afterwards the rows are as
    long as before, and the verifying pass writes the same positions again. Nothing is kept per request: what
    there is to know lies in the target's rows.

    Args:
        decoder: the target up to its exit, over the target's rows; the other arguments as for
            ``TokenByTokenProposer``.
    """

    most_unread = MOST_UNREAD

    def propose(self, context: DraftContext) -> Draft:
        """See ``Proposer.propose``. Greedy requests get point masses, the others drawn tokens.

        A request of which the target has yet to read more than the newest token gets no draft.
        """
        wanted = self._wanted(context)
        places = [place for place, count in enumerate(wanted) if count > 0]
        if not places:
            return Draft.none(len(wanted), context.sampling.temperature.device)
        return batch_draft(context, places, self._drafted(context, places, wanted))

    def release(self, request_id: str, reason: ReleaseReason) -> None:
        """See ``Proposer.release``."""

    def _wanted(self, context: DraftContext) -> list[int]:
        wanted = []
        for token_ids, row, most in zip(
            context.token_ids, context.cache_rows, context.max_draft_tokens, strict=True
        ):
            num_committed = len(token_ids)
            ready = self.decoder.valid_len(row) == num_committed - 1
            wanted.append(min(most, self._room(num_committed)) if ready else 0)
        return wanted

    def _drafted(self, context: DraftContext, places: Sequence[int], wanted: Sequence[int]) -> DraftedRows:
        row_ids = [context.cache_rows[place] for place in places]
        starts = [len(context.token_ids[place]) - 1 for place in places]
        newest = [context.token_ids[place][-1] for place in places]
        tokens = Tokens(to_device(newest, self.decoder.device), row_ids, starts, [1] * len(places))
        rows = DraftingRows(
            tokens,
            states=self._states(context, tokens),
            wanted=[wanted[place] for place in places],
            sampling=sampling_of(context.sampling, places, self.decoder.device),
        )
        try:
            return draft_tokens(self.decoder, self.head_ids, rows, self._min_confidence)
        finally:  # whatever happens in between, the target's rows end where they did
            for row, start in zip(row_ids, starts, strict=True):
                self.decoder.truncate(row, start)
