"""A proposer that draws, and reports the exact law it drew from, or a wrong one: negative controls."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from foredraft.proposers import DraftContext, Proposer
from foredraft.proposers.base import ReleaseReason
from foredraft.verifier import Draft, DraftProbs, Purpose, categorical


class DrawingProposer(Proposer):
    """Draws from a table of its own, and reports the law it drew from; the faults make the report wrong.

    Args:
        table: [V, V], the logits after each token.
        form: "dense"; "sparse": its ``top_k`` likeliest tokens per position; "shared": a trimmed head that
            knows tokens 0 to 4 alone; "mixed": every other request drafts a point mass, the likeliest token.
    """

    def __init__(
        self,
        table: Tensor,
        form: str = "dense",
        top_k: int = 0,
        temperature: float = 1.0,
        reported_temperature: float | None = None,
        greedy: bool = False,
        applies_top_k: bool = True,
    ) -> None:
        self.table, self.vocab_size = table, len(table)
        self.form, self.top_k, self.temperature = form, top_k, temperature
        self.reported_temperature = reported_temperature or temperature
        self.greedy, self.applies_top_k = greedy, applies_top_k

    def propose(self, context: DraftContext) -> Draft:
        num_rows, width = len(context.request_ids), max(context.max_draft_tokens)
        last = torch.tensor([tokens[-1] for tokens in context.token_ids])
        tokens, laws = (
            torch.empty(num_rows, width, dtype=torch.int64),
            torch.zeros(num_rows, width, self.vocab_size),
        )
        for offset in range(width):
            drawn_from, laws[:, offset] = self._drawn_from(last), self._law(last, self.reported_temperature)
            last = tokens[:, offset] = self._draw(drawn_from, context, offset)
        lengths = torch.tensor(context.max_draft_tokens)
        tokens[torch.arange(width) >= lengths[:, None]] = -1
        return Draft(tokens, lengths, self._report(laws, num_rows))

    def _draw(self, law: Tensor, context: DraftContext, offset: int) -> Tensor:
        sampling = context.sampling
        offsets = torch.full_like(sampling.block_starts, offset)
        drawn = categorical(law, sampling.request_keys, sampling.block_starts, offsets, Purpose.DRAFT)
        chosen = torch.full_like(drawn, self.greedy, dtype=torch.bool)
        if self.form == "mixed":
            chosen[1::2] = True
        return torch.where(chosen, law.argmax(1), drawn)

    def _drawn_from(self, last: Tensor) -> Tensor:
        return self._law(last, self.temperature, truncate=self.applies_top_k)

    def _law(self, last: Tensor, temperature: float, truncate: bool = True) -> Tensor:
        logits = self.table[last] / temperature
        if self.form == "shared":
            logits = logits.masked_fill(torch.arange(self.vocab_size) >= 5, -math.inf)
        if self.top_k and truncate:
            logits = logits.masked_fill(logits < logits.topk(self.top_k).values[:, -1:], -math.inf)
        return logits.softmax(-1)

    def _report(self, laws: Tensor, num_rows: int) -> DraftProbs:
        rows = torch.arange(num_rows)
        if self.form == "sparse":
            top = laws.topk(self.top_k)
            return DraftProbs(rows, top.values, top.indices)
        if self.form == "shared":
            return DraftProbs(rows, laws[:, :, :5], torch.arange(5))
        rows = rows[::2] if self.form == "mixed" else rows
        return DraftProbs(rows, laws[rows])

    def release(self, request_id: str, reason: ReleaseReason) -> None:
        """Keeps no state."""
