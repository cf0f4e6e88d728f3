"""The Decoder contract over a forward pass and a slot cache."""

from __future__ import annotations

import torch
from torch import Tensor

from foredraft.integration.embedded.attention import Layout, build_layout
from foredraft.integration.embedded.forward import ForwardPass
from foredraft.integration.embedded.slot_cache import SlotCache
from foredraft.integration.embedded.state_store import StateStore
from foredraft.proposers.decoder import HiddenStates, Tokens


class SlotDecoder:
    """See ``proposers.decoder.Decoder``. ``prepared`` may be shared between decoders, a cache may not.

    Args:
        keep_states: keep the last hidden state of every position in ``hidden_states``, for a draft to read.
    """

    def __init__(
        self,
        prepared: ForwardPass,
        num_rows: int,
        capacity: int,
        max_len: int,
        vocab_size: int,
        *,
        keep_states: bool = False,
    ) -> None:
        self.prepared = prepared
        self.num_rows = num_rows
        self.capacity = capacity
        self.max_len = max_len
        self.num_layers = prepared.num_layers
        self.vocab_size = vocab_size
        self.device = prepared.device
        self.cache = SlotCache(
            self.num_layers,
            num_rows,
            prepared.num_kv_heads,
            capacity,
            prepared.head_dim,
            prepared.dtype,
            self.device,
        )
        self._states: StateStore | None = None
        if keep_states:
            self._states = StateStore(num_rows, capacity, prepared.hidden_size, prepared.dtype, self.device)
        self.hidden_states: HiddenStates | None = self._states
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
        layout = self._layout(tokens)
        first, last = layers or (0, self.num_layers)
        if hidden is None:
            hidden = self.prepared.embed(tokens.token_ids, states)
        hidden = self.prepared.layers(hidden, layout, first, last)
        if self._states is not None and last == self.num_layers:
            self._states.write(layout.places, hidden)
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

    def _layout(self, tokens: Tokens) -> Layout:
        """A new layout, or the last one moved on by a position, as in drafting token by token."""
        if self._last is not None and _follows(tokens, self._last[0]):
            layout = self._last[1].following()
        else:
            layout = build_layout(self.cache, tokens, self.device)
        self._last = (tokens, layout) if max(tokens.query_lens) == 1 else None
        return layout


def _follows(tokens: Tokens, last: Tokens) -> bool:
    """Whether each row of ``last``, one token long, goes on with one token more."""
    return (
        list(tokens.row_ids) == list(last.row_ids)
        and list(tokens.starts) == [start + 1 for start in last.starts]
        and max(tokens.query_lens) == 1
    )
