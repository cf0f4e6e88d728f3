"""The laws that drafts in flight were drawn from, kept until vLLM has them verified, a step later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from foredraft.proposers import DraftContext
from foredraft.verifier import MIN_TEMPERATURE, Draft, DraftProbs


@dataclass(frozen=True)
class _Kept:
    """Row ``row`` of the laws ``of`` one call, drawn when ``block_start`` tokens were committed."""

    block_start: int
    of: DraftProbs
    row: int


class DraftStore:
    """Keyed by request and block start: vLLM's own place for them keeps all rows of a batch or none.

    A drawn draft without its law is judged as a point mass, by equality with the target's own token. The
    output's law is right all the same; fewer drafts are accepted.
    """

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, draft: Draft, context: DraftContext) -> None:
        """Remember the laws of a new draft, row by row; what was kept for these requests is gone.

        Not those of requests that were to draft greedily, a grammar's among them: vLLM cuts a draft off where
        the grammar forbids it, and to cut off a drawn token is lossy where it is judged by its law.
        """
        for request_id in context.request_ids:
            self._kept.pop(request_id, None)
        if draft.probs is None:
            return
        greedy = (context.sampling.temperature < MIN_TEMPERATURE).tolist()
        for place, row in enumerate(draft.probs.rows.tolist()):
            if not greedy[row]:
                block_start = len(context.token_ids[row])
                self._kept[context.request_ids[row]] = _Kept(block_start, draft.probs, place)

    def forget(self, request_id: str) -> None:
        """Drop what is kept for a request; unknown ones are ignored."""
        self._kept.pop(request_id, None)

    def clear(self) -> None:
        """Nothing was drafted: none of those kept will be asked for."""
        self._kept.clear()

    def probs(
        self, request_ids: Sequence[str], block_starts: Sequence[int], draft: Draft, vocab_size: int
    ) -> DraftProbs | None:
        """The laws of the drafts that are now verified; point-mass rows have none.

        Args:
            draft: the scheduled one: never longer than the one kept, of requests in any order.
        """
        if not self._kept or draft.token_ids.shape[1] == 0:
            return None
        found: list[tuple[int, _Kept]] = []
        for row, (request_id, start) in enumerate(zip(request_ids, block_starts, strict=True)):
            kept = self._kept.get(request_id)
            if kept is not None and kept.block_start == start:
                found.append((row, kept))
        if not found:
            return None
        rows = torch.tensor([row for row, _ in found], device=draft.token_ids.device)
        width = draft.token_ids.shape[1]
        first = found[0][1].of
        if first.probs.shape[1] >= width and all(kept.of is first for _, kept in found):
            places = torch.tensor([kept.row for _, kept in found], device=first.probs.device)
            support = first.support_ids
            if support is not None and support.dim() == 3:
                support = support[places, :width]
            return DraftProbs(rows, first.probs[places, :width], support)
        return DraftProbs(rows, torch.stack([_dense(kept, width, vocab_size) for _, kept in found]))


def _dense(kept: _Kept, width: int, vocab_size: int) -> torch.Tensor:
    """One row's laws over the whole vocabulary, [K, V]: for rows of several calls, whose forms may differ."""
    probs = kept.of.probs[kept.row, :width]
    support = kept.of.support_ids
    dense = probs.new_zeros(width, vocab_size)
    if support is None:
        dense[: len(probs)] = probs
        return dense
    ids = support.expand(len(probs), -1) if support.dim() == 1 else support[kept.row, :width]
    dense[: len(probs)].scatter_(1, ids, probs)
    return dense
