"""Stage 3, the features: what the target computes at every position of every piece, read once and kept.

Per position: the last hidden state after the final norm, bfloat16; the log-normaliser over the whole
vocabulary, float32; the likeliest token of the whole vocabulary, int32. The target's law of any tokens then
costs one product with rows of its head: log p = head @ state - log-normaliser.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from foredraft.integration.embedded.build import Target
from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.train.pieces import Piece
from foredraft.integration.train.shards import SHARD_TOKENS, Reading, make_shards
from foredraft.proposers.decoder import Tokens

FEATURES = "features"
HEAD_TOKENS = 256
"""Positions whose logits over the whole vocabulary are held at once."""
ROWS = 32
"""Positions normalised at once: their float32 logits stay in a core's cache, which halves the time."""


@dataclass(frozen=True)
class Features:
    """Features of one piece: states [T, H] bfloat16, log_normalisers [T] float32, argmax [T] int32."""

    states: Tensor
    log_normalisers: Tensor
    argmax: Tensor


def make_features(
    folder: Path,
    pieces: Sequence[Piece],
    target_name: str,
    load: Callable[[], Target],
    hidden_size: int,
    shard_tokens: int = SHARD_TOKENS,
) -> list[Features]:
    """Features of every piece, kept in ``folder``; see ``make_shards``.

    Args:
        target_name: fingerprint of the target; shards of another one are made anew.
        load: gives the target; called only if a shard is missing.

    Raises:
        UserError: the disk has not enough room.
    """
    reading = Reading(_features, 2 * hidden_size + 8, target_name, "the target reads")
    return [Features(**tensors) for tensors in make_shards(folder, pieces, reading, load, shard_tokens)]


def _features(decoder: SlotDecoder, tokens: Tokens) -> dict[str, Tensor]:
    states = decoder.forward(tokens)
    log_normalisers, argmax = [], []
    for part in states.split(HEAD_TOKENS):
        for rows in decoder.head(part).split(ROWS):
            logits = rows.float()
            log_normalisers.append(logits.logsumexp(-1))
            argmax.append(logits.argmax(-1).to(torch.int32))
    return {
        "states": states.to(torch.bfloat16),
        "log_normalisers": torch.cat(log_normalisers),
        "argmax": torch.cat(argmax),
    }
