"""Stage 3, the features: what the target computes at every position of every piece, read once and kept.

Per position: the last hidden state after the final norm, bfloat16; the log-normaliser over the whole
vocabulary, float32; the likeliest token of the whole vocabulary, int32. The target's law of any tokens then
costs one product with rows of its head: log p = head @ state - log-normaliser.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from safetensors.torch import save as to_safetensors
from torch import Tensor

from foredraft.integration.embedded.build import Target
from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.train.files import check_free_space, write_atomic, writing_to
from foredraft.integration.train.pieces import Piece
from foredraft.integration.train.progress import StageProgress
from foredraft.integration.train.settings import PIECE_TOKENS
from foredraft.proposers.decoder import Tokens

FEATURES = "features"
SHARD_TOKENS = 65_536
PASS_TOKENS = 2048
PASS_ROWS = 32
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
    """Features of every piece, read back by mmap; shards that are there already are not made again.

    Args:
        target_name: fingerprint of the target; shards of another one are made anew.
        load: gives the target; called only if a shard is missing.

    Raises:
        UserError: the disk has not enough room.
    """
    with writing_to(folder):
        folder.mkdir(exist_ok=True)
    shards = _split(pieces, shard_tokens)
    paths = [folder / f"{index:05d}.safetensors" for index in range(len(shards))]
    digests = [_digest(shard, target_name) for shard in shards]
    todo = [place for place, path in enumerate(paths) if digest_in(path) != digests[place]]
    if todo:
        num_tokens = sum(len(piece.token_ids) for place in todo for piece in shards[place])
        check_free_space(folder, num_tokens * (2 * hidden_size + 8) + len(todo) * 4096)
        _write_shards([(paths[place], shards[place], digests[place]) for place in todo], num_tokens, load())
    return [features for path, shard in zip(paths, shards, strict=True) for features in _read(path, shard)]


def _write_shards(todo: list[tuple[Path, list[Piece], str]], num_tokens: int, target: Target) -> None:
    capacity = min(PIECE_TOKENS, target.max_len)
    decoder = SlotDecoder(target.prepared, PASS_ROWS, capacity, target.max_len, target.vocab_size)
    done = 0
    with StageProgress("the target reads", num_tokens) as progress:
        for path, shard, digest in todo:
            passes = []
            for pieces in _passes(shard):
                passes.append(_features(decoder, pieces))
                done += sum(len(piece.token_ids) for piece in pieces)
                progress.update(done)
            states, log_normalisers, argmax = (torch.cat(parts) for parts in zip(*passes, strict=True))
            tensors = {"states": states, "log_normalisers": log_normalisers, "argmax": argmax}
            write_atomic(path, to_safetensors(tensors, {"digest": digest}))


@torch.inference_mode()
def _features(decoder: SlotDecoder, pieces: Sequence[Piece]) -> tuple[Tensor, Tensor, Tensor]:
    """One pass over several pieces, one cache row each; the rows are empty again afterwards."""
    ids = [token for piece in pieces for token in piece.token_ids]
    tokens = Tokens(
        token_ids=torch.tensor(ids, dtype=torch.int64, device=decoder.device),
        row_ids=range(len(pieces)),
        starts=[0] * len(pieces),
        query_lens=[len(piece.token_ids) for piece in pieces],
    )
    states = decoder.forward(tokens)
    for row in range(len(pieces)):
        decoder.truncate(row, 0)
    log_normalisers, argmax = [], []
    for part in states.split(HEAD_TOKENS):
        for rows in decoder.head(part).split(ROWS):
            logits = rows.float()
            log_normalisers.append(logits.logsumexp(-1))
            argmax.append(logits.argmax(-1).to(torch.int32))
    return states.to(torch.bfloat16).cpu(), torch.cat(log_normalisers).cpu(), torch.cat(argmax).cpu()


def _passes(shard: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Pieces in order, as many as one pass takes."""
    pieces: list[Piece] = []
    for piece in shard:
        num_tokens = sum(len(one.token_ids) for one in pieces) + len(piece.token_ids)
        if pieces and (num_tokens > PASS_TOKENS or len(pieces) == PASS_ROWS):
            yield pieces
            pieces = []
        pieces.append(piece)
    yield pieces


def _split(pieces: Sequence[Piece], shard_tokens: int) -> list[list[Piece]]:
    shards: list[list[Piece]] = []
    room = 0
    for piece in pieces:
        if room <= 0:
            shards.append([])
            room = shard_tokens
        shards[-1].append(piece)
        room -= len(piece.token_ids)
    return shards


def _digest(shard: Sequence[Piece], target_name: str) -> str:
    digest = hashlib.sha256(target_name.encode())
    for piece in shard:
        digest.update(f"{piece.token_ids}".encode())
    return digest.hexdigest()


def digest_in(path: Path) -> str | None:
    """What a shard says it was made of; ``None`` if it is missing or damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            return (file.metadata() or {}).get("digest")
    except (OSError, SafetensorError):
        return None


def _read(path: Path, shard: Sequence[Piece]) -> Iterator[Features]:
    tensors = load_file(path)  # mapped, not read: pages come as they are used
    begin = 0
    for piece in shard:
        place = slice(begin, begin + len(piece.token_ids))
        begin = place.stop
        yield Features(tensors["states"][place], tensors["log_normalisers"][place], tensors["argmax"][place])
