"""Drafts by look-up: what followed the last time these tokens were written."""

from __future__ import annotations

from collections.abc import Sequence

from foredraft.proposers.base import DraftContext, Outcome, Proposer, ReleaseReason
from foredraft.proposers.ngram_index import Match, NgramIndex
from foredraft.proposers.ngram_keys import GramSizes
from foredraft.proposers.output_log import OutputLog
from foredraft.proposers.shared_store import SharedStore
from foredraft.verifier import Draft

NOTHING_FOUND = (-1, None)


class NgramProposer(Proposer):
    """Finds the longest suffix of a request, min_n to max_n tokens, that occurred in it before.

    Of several occurrences the latest counts; the tokens after it are the draft, a point mass. A draft that
    runs into the end of the request goes on with itself: after "a b a b" it drafts "a b a b ...".

    Args:
        min_n: shortest suffix looked up, in tokens. Lower drafts more often, and more often wrongly.
        max_n: longest, at most 32. Each size costs time and memory.
        draft_growth: how far a match is trusted: one of n tokens drafts at most 1 + draft_growth * (n - 1),
            one of max_n tokens as many as allowed. 0 = every match drafts as many as allowed. Replayed on
            greedy output of the built-in model, one matched token is right in 1 of 5 drafts, five in 9 of 10.
        shared_store_tokens: outputs of finished requests to keep for requests that find nothing in
            themselves, in tokens; 0 = none. Leave it off where one user must not learn, by the speed of an
            answer, what another was answered.

    Raises:
        ValueError: a bound out of range.
    """

    def __init__(
        self, min_n: int = 2, max_n: int = 4, draft_growth: int = 0, shared_store_tokens: int = 0
    ) -> None:
        if type(draft_growth) is not int or draft_growth < 0:
            raise ValueError(f"draft_growth must be a whole number, 0 or more, got {draft_growth!r}")
        self._sizes = GramSizes(min_n, max_n)
        self._draft_growth = draft_growth
        self._store = SharedStore(shared_store_tokens, self._sizes) if shared_store_tokens != 0 else None
        self.num_prospects = max_n - min_n + 1 + (self._store is not None)
        self._indexes: dict[str, NgramIndex] = {}
        # What ``prospects`` found, and among how many tokens, until ``propose`` takes it.
        self._found: dict[str, tuple[int, Match | None]] = {}
        self._outputs = OutputLog()

    def propose(self, context: DraftContext) -> Draft:
        rows = zip(context.request_ids, context.token_ids, context.max_draft_tokens, strict=True)
        drafts = [self._draft_row(request_id, tokens, limit) for request_id, tokens, limit in rows]
        return Draft.from_lists(drafts, device=context.sampling.temperature.device)

    def _draft_row(self, request_id: str, tokens: Sequence[int], limit: int) -> list[int]:
        if self._store is not None:
            self._outputs.expect(request_id, len(tokens))
        length, match = self._found.pop(request_id, NOTHING_FOUND)
        if limit <= 0:
            return []
        if length != len(tokens):
            match = self._look_up(request_id, tokens)
        if match is not None:
            return _continue_from(tokens, match.end, min(limit, self._trusted_length(match.length, limit)))
        return self._store.find(tokens, limit) if self._store is not None else []

    def prospects(self, request_ids: Sequence[str], token_ids: Sequence[Sequence[int]]) -> Sequence[int]:
        """See ``Proposer.prospects``: matches by their length, then what other requests' outputs bring."""
        return [self._prospect(*pair) for pair in zip(request_ids, token_ids, strict=True)]

    def _prospect(self, request_id: str, tokens: Sequence[int]) -> int:
        match = self._look_up(request_id, tokens)
        self._found[request_id] = len(tokens), match
        if match is not None:
            return match.length - self._sizes.min_n + 1
        return self.num_prospects if self._store is not None and self._store.find(tokens, 1) else 0

    def _look_up(self, request_id: str, tokens: Sequence[int]) -> Match | None:
        index = self._indexes.get(request_id)
        if index is None:
            index = self._indexes[request_id] = NgramIndex(self._sizes)
        index.catch_up(tokens)
        return index.find(tokens)

    def _trusted_length(self, matched: int, limit: int) -> int:
        if self._draft_growth == 0 or matched == self._sizes.max_n:
            return limit
        return 1 + self._draft_growth * (matched - 1)

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            self._outputs.append(outcome)

    def release(self, request_id: str, reason: ReleaseReason) -> None:
        self._indexes.pop(request_id, None)
        self._found.pop(request_id, None)
        output = self._outputs.pop(request_id)
        if self._store is not None and reason == "finished":
            self._store.add(output)


def _continue_from(tokens: Sequence[int], start: int, limit: int) -> list[int]:
    """``limit`` tokens from ``start`` on; past the end of ``tokens`` they repeat from ``start``."""
    period = list(tokens[start : start + limit])
    return (period * (limit // len(period) + 1))[:limit]
