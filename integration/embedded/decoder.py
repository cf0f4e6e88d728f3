"""The Decoder contract over a transformers model and a slot cache."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from foredraft.integration.embedded.attention import build_layout
from foredraft.integration.embedded.fused_model import FusedModel, why_not_fused
from foredraft.integration.embedded.slot_cache import SlotCache
from foredraft.integration.errors import UserError
from foredraft.proposers.decoder import Tokens


def prepare_model(model: Any, forward: str = "auto") -> Any:
    """Choose the forward pass of a transformers model: ``fused``, ``plain``, or ``auto`` (fused if it can).

    Raises:
        UserError: the model cannot run that way; the message says why.
    """
    reason = why_not_fused(model)
    if forward == "fused" and reason is not None:
        raise UserError(f"engine.forward: 'fused' cannot run this model: {reason}; use 'plain' or 'auto'")
    if forward != "plain" and reason is None:
        return FusedModel(model)
    from foredraft.integration.embedded.plain_model import PlainModel, why_not_plain

    reason = why_not_plain(model)
    if reason is not None:
        raise UserError(f"model: the embedded engine cannot run {model.config.model_type!r}: {reason}")
    return PlainModel(model)


class SlotDecoder:
    """See ``proposers.decoder.Decoder``. ``prepared`` may be shared between decoders, a cache may not."""

    def __init__(self, prepared: Any, num_rows: int, capacity: int, max_len: int, vocab_size: int) -> None:
        self.prepared = prepared
        self.num_rows = num_rows
        self.capacity = capacity
        self.max_len = max_len
        self.num_layers: int = prepared.num_layers
        self.vocab_size = vocab_size
        weight = prepared.embed(torch.zeros(1, dtype=torch.int64))
        self.device, self.dtype = weight.device, weight.dtype
        self.cache = SlotCache(
            self.num_layers, num_rows, prepared.num_kv_heads, capacity, prepared.head_dim, self.dtype, self.device
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
        output: Tensor = self.prepared.layers(hidden, layout, first, last)
        return output

    @torch.inference_mode()
    def head(self, hidden: Tensor) -> Tensor:
        """[N, H] -> [N, V]."""
        logits: Tensor = self.prepared.head(hidden)
        return logits

    def valid_len(self, row: int) -> int:
        """Valid leading positions of a row."""
        return self.cache.lengths[row]

    def truncate(self, row: int, length: int) -> None:
        """Roll a row back."""
        self.cache.truncate(row, length)
