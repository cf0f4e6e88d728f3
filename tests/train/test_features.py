"""The features against a plain transformers forward, and how their shards are kept."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM

from foredraft.integration.config import Config
from foredraft.integration.embedded.build import load_target
from foredraft.integration.errors import UserError
from foredraft.integration.train import files, shards
from foredraft.integration.train.features import Features, make_features
from foredraft.integration.train.pieces import Piece, cut
from foredraft.integration.train.samples import Sample

HIDDEN_SIZE = 64


@pytest.fixture
def pieces(random_samples: Callable[..., list[Sample]]) -> list[Piece]:
    return cut(random_samples(count=20))


@pytest.fixture
def make(tmp_path: Path, toy_config: Config, pieces: list[Piece]) -> Callable[..., list[Features]]:
    """Features in shards of about 100 tokens."""

    def run(load: object = None, target_name: str = "toy") -> list[Features]:
        given = load or (lambda: load_target(toy_config))
        return make_features(tmp_path / "features", pieces, target_name, given, HIDDEN_SIZE, shard_tokens=100)

    return run


def test_features_equal_a_plain_forward(
    make: Callable[..., list[Features]], pieces: list[Piece], toy_folder: Path
) -> None:
    model = AutoModelForCausalLM.from_pretrained(toy_folder, dtype=torch.float32)
    found = make()
    assert len(found) == len(pieces)
    for piece, one in zip(pieces, found, strict=True):
        with torch.no_grad():
            output = model(torch.tensor([piece.token_ids]), output_hidden_states=True)
        # bfloat16 keeps 8 bits: a relative error of 2^-9.
        torch.testing.assert_close(one.states.float(), output.hidden_states[-1][0], rtol=2**-8, atol=1e-3)
        torch.testing.assert_close(one.log_normalisers, output.logits[0].logsumexp(-1), rtol=1e-5, atol=1e-4)
        assert torch.equal(one.argmax, output.logits[0].argmax(-1).to(torch.int32))


def test_shards_that_are_there_are_not_made_again(
    make: Callable[..., list[Features]], tmp_path: Path
) -> None:
    # Copies: features are a view of their files, which this test changes.
    first = [one.states.clone() for one in make()]
    shards = sorted((tmp_path / "features").iterdir())
    assert len(shards) > 3
    second = make(load=pytest.fail)
    assert all(torch.equal(one, two.states) for one, two in zip(first, second, strict=True))
    shards[1].write_bytes(b"half")
    before = {shard: shard.stat().st_mtime_ns for shard in shards}
    third = make()
    changed = [shard for shard in shards if shard.stat().st_mtime_ns != before[shard]]
    assert changed == [shards[1]]
    assert all(torch.equal(one, two.states) for one, two in zip(first, third, strict=True))


def test_shards_of_another_target_are_made_again(make: Callable[..., list[Features]]) -> None:
    make()
    with pytest.raises(pytest.fail.Exception):
        make(load=lambda: pytest.fail("asked for the target"), target_name="another")


def test_too_little_room_is_said_before_anything_is_read(
    make: Callable[..., list[Features]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(UserError, match=r"MB more, 0\.0 MB are free"):
        make(load=pytest.fail)


def test_a_disk_that_fills_up_leaves_nothing_half_written(
    make: Callable[..., list[Features]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, written = files.os.fsync, []

    def fsync(descriptor: int) -> None:
        if written:
            raise OSError(28, "No space left on device")
        written.append(descriptor)
        write(descriptor)

    monkeypatch.setattr(files.os, "fsync", fsync)
    with pytest.raises(UserError, match="No space left on device"):
        make()
    assert [path.name for path in (tmp_path / "features").iterdir()] == ["00000.safetensors"]
    monkeypatch.undo()
    make()


def test_passes_are_cut_by_tokens_and_by_rows(pieces: list[Piece], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "PASS_TOKENS", 60)
    monkeypatch.setattr(shards, "PASS_ROWS", 3)
    passes = list(shards._passes(pieces))
    assert [piece for one in passes for piece in one] == pieces
    assert max(len(one) for one in passes) <= 3
    assert all(len(one) == 1 or sum(len(piece.token_ids) for piece in one) <= 60 for one in passes)
