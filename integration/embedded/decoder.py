"""The Decoder contract over a transformers model and a slot cache."""

from __future__ import annotations

import torch
from torch import Tensor

from foredraft.integration.embedded.attention import build_layout
from foredraft.integration.embedded.forward import ForwardPass
from foredraft.integration.embedded.slot_cache import SlotCache
from foredraft.proposers.decoder import Tokens


class SlotDecoder:
    """See ``proposers.decoder.Decoder``. ``prepared`` may be shared between decoders, a cache may not."""

    def __init__(
        self, prepared: ForwardPass, num_rows: int, capacity: int, max_len: int, vocab_size: int
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

    @torch.inference_mode()
    def forward(
        self, tokens: Tokens, layers: tuple[int, int] | None = None, hidden: Tensor | None = None
    ) -> Tensor:
        """Run layers [a, b) over ragged tokens, writing keys and values in place."""
        self.cache.reserve(tokens.row_ids, tokens.starts, tokens.query_lens)
        layout = build_layout(self.cache, tokens, self.device)
        first, last = layers or (0, self.num_layers)
        if hidden is None:
            hidden = self.prepared.embed(tokens.token_ids)
        return self.prepared.layers(hidden, layout, first, last)

    @torch.inference_mode()
    def head(self, hidden: Tensor) -> Tensor:
        """[N, H] -> [N, V]."""
        return self.prepared.head(hidden)

    def valid_len(self, row: int) -> int:
        """Valid leading positions of a row."""
        return self.cache.lengths[row]

    def truncate(self, row: int, length: int) -> None:
        """Roll a row back."""
        self.cache.truncate(row, length)
