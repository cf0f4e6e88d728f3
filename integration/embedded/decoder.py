"""The Decoder contract over a forward pass and a slot cache."""

from __future__ import annotations

import torch
from torch import Tensor

from foredraft.integration.embedded.attention import Layout, build_layout
from foredraft.integration.embedded.exit_backlog import ExitBacklog
from foredraft.integration.embedded.exit_head import TrainedHead
from foredraft.integration.embedded.forward import ForwardPass
from foredraft.integration.embedded.slot_cache import SlotCache
from foredraft.integration.embedded.state_store import StateStore
from foredraft.proposers.decoder import HiddenStates, Tokens, follows


class SlotDecoder:
    """See ``proposers.decoder.Decoder``. ``prepared`` may be shared between decoders, a cache may not.

    Args:
        keep_states: how many of the newest positions of each row keep their last hidden state in
            ``hidden_states``, for a draft to read.
        exit_head: has layers of its own, whose keys and values lie in the cache behind those of the model's
            layers; see ``exit_backlog`` for when they are written.
    """

    def __init__(
        self,
        prepared: ForwardPass,
        num_rows: int,
        capacity: int,
        max_len: int,
        vocab_size: int,
        *,
        keep_states: int = 0,
        exit_head: TrainedHead | None = None,
    ) -> None:
        self.prepared = prepared
        self.num_rows = num_rows
        self.capacity = capacity
        self.max_len = max_len
        self.num_layers = prepared.num_layers
        self.vocab_size = vocab_size
        self.device = prepared.device
        self.cache = SlotCache(
            self.num_layers + (exit_head.num_layers if exit_head else 0),
            num_rows,
            prepared.num_kv_heads,
            capacity,
            prepared.head_dim,
            prepared.dtype,
            self.device,
        )
        self._states: StateStore | None = None
        if keep_states:
            width = min(keep_states, capacity)
            self._states = StateStore(num_rows, width, prepared.hidden_size, prepared.dtype, self.device)
        self.hidden_states: HiddenStates | None = self._states
        self.exit_backlog = ExitBacklog(exit_head, self.cache, self._states) if exit_head else None
        self._last: tuple[Tokens, Layout] | None = None

    @torch.inference_mode()
    def forward(
        self,
        tokens: Tokens,
        layers: tuple[int, int] | None = None,
        hidden: Tensor | None = None,
        states: Tensor | None = None,
    ) -> Tensor:
        """Run layers [a, b) over ragged tokens, writing keys and values in place."""
        self.cache.reserve(tokens.row_ids, tokens.starts, tokens.query_lens)
        layout = self.layout(tokens)
        first, last = layers or (0, self.num_layers)
        if hidden is None:
            hidden = self.prepared.embed(tokens.token_ids, states)
        if self.exit_backlog is not None and (first, last) == (0, self.num_layers):
            hidden = self._past_exit(tokens, layout, hidden, self.exit_backlog)
        else:
            hidden = self.prepared.layers(hidden, layout, first, last)
        if self._states is not None and last == self.num_layers:
            self._states.write(tokens.row_ids, tokens.starts, tokens.query_lens, hidden)
        return hidden

    def _past_exit(self, tokens: Tokens, layout: Layout, hidden: Tensor, backlog: ExitBacklog) -> Tensor:
        """The whole model; on the way the exit head's turn comes, or is put off."""
        exit_layer = backlog.exit_layer
        at_exit = self.prepared.layers(hidden, layout, 0, exit_layer)
        hidden = self.prepared.layers(at_exit, layout, exit_layer, self.num_layers)
        backlog.add(tokens, layout, at_exit, hidden)
        return hidden

    @torch.inference_mode()
    def head(self, hidden: Tensor) -> Tensor:
        """[N, H] -> [N, S]."""
        return self.prepared.head(hidden)

    def valid_len(self, row: int) -> int:
        """Valid leading positions of a row."""
        return self.cache.lengths[row]

    def truncate(self, row: int, length: int) -> None:
        """Roll a row back."""
        self.cache.truncate(row, length)

    def layout(self, tokens: Tokens) -> Layout:
        """How the tokens of a pass lie in the cache.

        Made anew, but for one token per row: that of the last pass serves for the same tokens, and moved on
        by a position for the next ones, as in drafting token by token.
        """
        if self._last is not None and tokens is self._last[0]:
            return self._last[1]
        if self._last is not None and follows(tokens, self._last[0]):
            layout = self._last[1].following()
        else:
            layout = build_layout(self.cache, tokens, self.device)
        self._last = (tokens, layout) if max(tokens.query_lens) == 1 else None
        return layout
