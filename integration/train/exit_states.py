"""Stage 3 of an exit head, beside the features: the target's state after the exit layer, everywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from foredraft.integration.embedded.build import Target
from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.train.pieces import Piece
from foredraft.integration.train.shards import SHARD_TOKENS, Reading, make_shards
from foredraft.proposers.decoder import Tokens

EXIT_STATES = "exit_states"
SIZE_POSITIONS = 20_000


def exit_states_folder(folder: Path, exit_layer: int) -> Path:
    """Where the states of one layer are kept."""
    return folder / f"{EXIT_STATES}-{exit_layer}"


def make_exit_states(
    folder: Path,
    pieces: Sequence[Piece],
    target_name: str,
    exit_layer: int,
    load: Callable[[], Target],
    hidden_size: int,
    shard_tokens: int = SHARD_TOKENS,
) -> list[Tensor]:
    """Of every piece [T, H] bfloat16, before any norm, kept in ``folder``; see ``make_shards``.

    Only the layers before the exit run.

    Args:
        target_name: fingerprint of the target; shards of another one, or of another layer, are made anew.
        load: gives the target; called only if a shard is missing.

    Raises:
        UserError: the disk has not enough room.
    """

    def compute(decoder: SlotDecoder, tokens: Tokens) -> dict[str, Tensor]:
        return {"states": decoder.forward(tokens, layers=(0, exit_layer)).to(torch.bfloat16)}

    title = f"the target reads up to layer {exit_layer}"
    reading = Reading(compute, 2 * hidden_size, f"{target_name} up to layer {exit_layer}", title)
    return [tensors["states"] for tensors in make_shards(folder, pieces, reading, load, shard_tokens)]


def typical_size(states: Sequence[Tensor]) -> float:
    """Root mean square of a state, mean over the first ``SIZE_POSITIONS``."""
    sizes: list[Tensor] = []
    for one in states:
        sizes.append(one.float().pow(2).mean(-1).sqrt())
        if sum(map(len, sizes)) >= SIZE_POSITIONS:
            break
    return torch.cat(sizes).mean().item()
