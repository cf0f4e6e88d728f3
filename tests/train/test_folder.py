"""What a run may find in its folder, and who else may be in it."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from foredraft.integration.errors import UserError
from foredraft.integration.train.files import write_atomic
from foredraft.integration.train.folder import run_folder
from foredraft.integration.train.samples import Sample, append_samples, read_samples


@pytest.mark.parametrize(
    "name", ["README.md", "model.safetensors", "checkpoint/last.pt", "features/notes.txt", "features"]
)
def test_a_folder_of_something_else_is_refused_and_stays_as_it_is(tmp_path: Path, name: str) -> None:
    path = tmp_path / "mine" / name
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    with (
        pytest.raises(UserError, match=rf"--out: .*mine is not empty .*\({name.partition('/')[0]}\)"),
        run_folder(tmp_path / "mine", []),
    ):
        pass
    assert sorted(tmp_path.rglob("*")) == before
    assert path.read_text() == "mine"


def test_a_shard_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "features").mkdir()
    save_file({"a": torch.zeros(1)}, tmp_path / "features" / "00000.safetensors")
    with pytest.raises(UserError, match="holds no training"), run_folder(tmp_path, []):
        pass


@pytest.mark.parametrize("name", ["given.jsonl", "written.jsonl"])
@pytest.mark.parametrize("end", ["", "\n"])
def test_a_file_of_the_user_under_our_name_is_refused_and_stays(tmp_path: Path, name: str, end: str) -> None:
    path = tmp_path / name
    path.write_text('{"text": "mine"}' + end)
    with pytest.raises(UserError, match=rf"{name}, line 1: not a sample"), run_folder(tmp_path, []):
        pass
    assert path.read_text() == '{"text": "mine"}' + end


def test_earlier_samples_may_be_dropped_in(
    tmp_path: Path, random_samples: Callable[..., list[Sample]]
) -> None:
    samples = random_samples(count=3)
    append_samples(tmp_path / "given.jsonl", samples)
    (tmp_path / "features").mkdir()
    shard = tmp_path / "features" / "00000.safetensors"
    save_file({"a": torch.zeros(1)}, shard, metadata={"digest": "abc"})
    with run_folder(tmp_path, []):
        assert read_samples(tmp_path / "given.jsonl") == samples


def test_what_a_run_that_ended_early_leaves_is_taken(tmp_path: Path) -> None:
    with run_folder(tmp_path / "out", []):
        (tmp_path / "out" / "settings.json.tmp").touch()
    with run_folder(tmp_path / "out", []):
        pass


@pytest.mark.parametrize(
    "name",
    [
        "exit_states-1/00000.safetensors.tmp",
        "exit_states-1/00000.safetensors",
        "features/00001.safetensors",
        "sweep.json.tmp",
        "sweep-2/settings.json.tmp",
    ],
)
def test_what_a_sweep_that_was_killed_leaves_is_taken(tmp_path: Path, name: str) -> None:
    """Half-written or damaged: it is made again."""
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"\x00" * 100)
    with run_folder(tmp_path, []):
        pass


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError])
def test_a_file_that_is_not_finished_is_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: type[BaseException]
) -> None:
    def interrupted(descriptor: int) -> None:
        raise stop

    monkeypatch.setattr("os.fsync", interrupted)
    with pytest.raises((KeyboardInterrupt, UserError)):
        write_atomic(tmp_path / "sweep.json", b"{}")
    assert list(tmp_path.iterdir()) == []


def test_two_runs_in_a_folder_are_refused(tmp_path: Path) -> None:
    with (
        run_folder(tmp_path, []),
        pytest.raises(UserError, match="--out: another run is at work in"),
        run_folder(tmp_path, []),
    ):
        pass
    with run_folder(tmp_path, []):
        pass


def test_data_under_a_name_that_the_run_writes_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "out" / ".." / "out" / "given.jsonl"
    with (
        pytest.raises(UserError, match=r"--data: .*given\.jsonl is a file that the run itself writes"),
        run_folder(tmp_path / "out", [str(data)]),
    ):
        pass
