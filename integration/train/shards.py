"""What the target computes at every position of every piece: made once, kept in shards, read back by mmap."""

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

SHARD_TOKENS = 65_536
PASS_TOKENS = 2048
PASS_ROWS = 32


@dataclass(frozen=True)
class Reading:
    """What is computed of a pass.

    Attributes:
        compute: tensors by name, one row per token of the pass.
        token_bytes: what a token takes on the disk.
        source: the target's fingerprint, and what else the tensors hang on beside the tokens.
        title: of the stage, for the progress.
    """

    compute: Callable[[SlotDecoder, Tokens], dict[str, Tensor]]
    token_bytes: int
    source: str
    title: str


def make_shards(
    folder: Path,
    pieces: Sequence[Piece],
    reading: Reading,
    load: Callable[[], Target],
    shard_tokens: int = SHARD_TOKENS,
) -> list[dict[str, Tensor]]:
    """The tensors of every piece, read back by mmap; shards that are there already are not made again.

    Args:
        load: gives the target; called only if a shard is missing.

    Raises:
        UserError: the disk has not enough room.
    """
    with writing_to(folder):
        folder.mkdir(exist_ok=True)
    shards = _split(pieces, shard_tokens)
    paths = [folder / f"{index:05d}.safetensors" for index in range(len(shards))]
    digests = [_digest(shard, reading.source) for shard in shards]
    todo = [place for place, path in enumerate(paths) if _digest_in(path) != digests[place]]
    if todo:
        num_tokens = sum(len(piece.token_ids) for place in todo for piece in shards[place])
        check_free_space(folder, num_tokens * reading.token_bytes + len(todo) * 4096)
        missing = [(paths[place], shards[place], digests[place]) for place in todo]
        _write_shards(missing, num_tokens, reading, load())
    return [tensors for path, shard in zip(paths, shards, strict=True) for tensors in _read(path, shard)]


def _digest_in(path: Path) -> str | None:
    """What a shard says it was made of; ``None`` if it is missing or damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            return (file.metadata() or {}).get("digest")
    except (OSError, SafetensorError):
        return None


def is_foreign(path: Path) -> bool:
    """Whether a file is whole and no shard. A damaged one is taken for ours, which will be made again."""
    try:
        with safe_open(path, framework="pt") as file:
            return "digest" not in (file.metadata() or {})
    except (OSError, SafetensorError):
        return False


def _write_shards(
    missing: list[tuple[Path, list[Piece], str]], num_tokens: int, reading: Reading, target: Target
) -> None:
    capacity = min(PIECE_TOKENS, target.max_len)
    decoder = SlotDecoder(target.prepared, PASS_ROWS, capacity, target.max_len, target.vocab_size)
    done = 0
    with StageProgress(reading.title, num_tokens) as progress:
        for path, shard, digest in missing:
            passes = []
            for pieces in _passes(shard):
                passes.append(_pass(decoder, pieces, reading))
                done += sum(len(piece.token_ids) for piece in pieces)
                progress.update(done)
            tensors = {name: torch.cat([one[name] for one in passes]) for name in passes[0]}
            write_atomic(path, to_safetensors(tensors, {"digest": digest}))


@torch.inference_mode()
def _pass(decoder: SlotDecoder, pieces: Sequence[Piece], reading: Reading) -> dict[str, Tensor]:
    """One pass over several pieces, one cache row each; the rows are empty again afterwards."""
    ids = [token for piece in pieces for token in piece.token_ids]
    tokens = Tokens(
        token_ids=torch.tensor(ids, dtype=torch.int64, device=decoder.device),
        row_ids=range(len(pieces)),
        starts=[0] * len(pieces),
        query_lens=[len(piece.token_ids) for piece in pieces],
    )
    tensors = reading.compute(decoder, tokens)
    for row in range(len(pieces)):
        decoder.truncate(row, 0)
    return {name: tensor.cpu() for name, tensor in tensors.items()}


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


def _digest(shard: Sequence[Piece], source: str) -> str:
    digest = hashlib.sha256(source.encode())
    for piece in shard:
        digest.update(f"{piece.token_ids}".encode())
    return digest.hexdigest()


def _read(path: Path, shard: Sequence[Piece]) -> Iterator[dict[str, Tensor]]:
    tensors = load_file(path)  # mapped, not read: pages come as they are used
    begin = 0
    for piece in shard:
        place = slice(begin, begin + len(piece.token_ids))
        begin = place.stop
        yield {name: tensor[place] for name, tensor in tensors.items()}
