"""The target up to its exit, as a decoder that drafts."""

from __future__ import annotations

import torch
from torch import Tensor

from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.embedded.exit_head import ExitHead
from foredraft.proposers.decoder import Tokens


class ExitDecoder:
    """See ``proposers.decoder.DraftDecoder``. Its rows are the target's: what it reads, it writes there.

    Args:
        target: a decoder whose cache has the layers of ``exit_head``.
    """

    def __init__(self, target: SlotDecoder, exit_head: ExitHead) -> None:
        self._target = target
        self._exit_head = exit_head
        self.num_rows = target.num_rows
        self.capacity = target.capacity
        self.max_len = target.max_len
        self.device = target.device
        self.vocab_size = target.vocab_size

    @torch.inference_mode()
    def forward(self, tokens: Tokens, *, states: Tensor | None = None) -> Tensor:
        """The target's first layers, then the exit head; [T, H]."""
        at_exit = self._target.forward(tokens, layers=(0, self._exit_head.exit_layer))
        backlog = self._target.exit_backlog
        if backlog is None:
            return self._exit_head.forward(at_exit, states, self._target.layout(tokens))
        backlog.catch_up(tokens)
        hidden = self._exit_head.forward(at_exit, states, self._target.layout(tokens))
        backlog.note_drafting(tokens)
        return hidden

    @torch.inference_mode()
    def head(self, hidden: Tensor) -> Tensor:
        """[N, H] -> [N, S]."""
        return self._exit_head.head(hidden)

    def valid_len(self, row: int) -> int:
        """Valid leading positions of a row."""
        return self._target.valid_len(row)

    def truncate(self, row: int, length: int) -> None:
        """Roll a row back."""
        self._target.truncate(row, length)
