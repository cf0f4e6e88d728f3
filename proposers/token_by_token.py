"""What proposers that draft token by token with a decoder have in common."""

from __future__ import annotations

from torch import Tensor

from foredraft.proposers.base import DraftContext, Proposer
from foredraft.proposers.decoder import DraftDecoder, Tokens


class TokenByTokenProposer(Proposer):
    """Drafts by ``drafting.draft_tokens``.

    Args:
        decoder: what drafts, over a cache row for every row of the target's.
        head_ids: see ``draft_tokens``.
        reads_states: whether it also reads the target's last hidden state of the position before.
        min_confidence: see ``draft_tokens``.
    """

    def __init__(
        self,
        decoder: DraftDecoder,
        head_ids: Tensor | None = None,
        *,
        reads_states: bool = False,
        min_confidence: float = 0.0,
    ) -> None:
        self.decoder = decoder
        self.needs_hidden_states = reads_states
        self.head_ids = head_ids
        self._min_confidence = min_confidence
        self._limit = min(decoder.capacity, decoder.max_len)

    def _room(self, num_committed: int) -> int:
        """Tokens that a request of so many can draft at most, 0 or less for none.

        Of K tokens the last one is not read: positions up to num_committed + K - 2.
        """
        return self._limit - num_committed + 1

    def _states(self, context: DraftContext, tokens: Tokens) -> Tensor | None:
        """[T, H], the target's states one position before each of ``tokens``; ``None`` if none are read."""
        if not self.needs_hidden_states:
            return None
        assert context.hidden_states is not None, "this proposer reads the target's hidden states"
        firsts = [start - 1 for start in tokens.starts]
        states = context.hidden_states.read(tokens.row_ids, firsts, tokens.query_lens)
        return states.to(self.decoder.device)
