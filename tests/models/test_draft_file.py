"""The file of a trained draft: what is written comes back, and one line for all that is no such file."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from foredraft.integration.errors import UserError
from foredraft.integration.models import draft_file
from foredraft.integration.models.draft_file import (
    DRAFT_FILE,
    EXIT_FILE,
    DraftFile,
    is_draft_file,
    read_draft_file,
    read_exit_file,
)

METADATA = {
    "format": "1",
    "kind": "draft",
    "target": "toy",
    "target_fingerprint": "abc",
    "reads_states": "true",
    "own_head": "false",
    "num_draft_tokens": "2",
    "config": '{"model_type": "llama", "hidden_size": 4, "num_hidden_layers": 1}',
}


@pytest.fixture
def draft() -> DraftFile:
    return DraftFile(
        kind="draft",
        target="smollm2-135m",
        target_fingerprint="0123abcd",
        reads_states=True,
        layers_config={
            "model_type": "llama",
            "hidden_size": 4,
            "num_hidden_layers": 1,
            "rope_parameters": {"rope_theta": 1e4},
        },
        tensors={
            "norm.weight": torch.randn(4).bfloat16(),
            "input_proj.weight": torch.randn(6, 4).t(),  # not contiguous
        },
        head_ids=torch.tensor([0, 3, 8]),
        num_draft_tokens=3,
    )


def refusal(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        read_draft_file(path)
    assert str(caught.value).startswith("draft.model: ")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_is_written_comes_back(draft: DraftFile, tmp_path: Path) -> None:
    draft_file.write_draft_file(tmp_path / DRAFT_FILE, draft)
    for path in (tmp_path, tmp_path / DRAFT_FILE):
        read = read_draft_file(path)
        for field in fields(DraftFile):
            if field.name not in ("tensors", "head_ids"):
                assert getattr(read, field.name) == getattr(draft, field.name)
        assert torch.equal(read.head_ids, draft.head_ids)
        assert read.tensors.keys() == draft.tensors.keys()
        for name, tensor in draft.tensors.items():
            assert read.tensors[name].dtype == tensor.dtype
            assert torch.equal(read.tensors[name], tensor)


def test_a_failed_write_leaves_the_old_file(
    draft: DraftFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / DRAFT_FILE
    draft_file.write_draft_file(path, draft)
    old = path.read_bytes()

    def full(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
        path.write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(draft_file, "save_file", full)
    with pytest.raises(UserError, match="cannot be written: No space left on device"):
        draft_file.write_draft_file(path, replace(draft, target="other"))
    assert path.read_bytes() == old
    assert [one.name for one in tmp_path.iterdir()] == [DRAFT_FILE]


def test_into_a_folder_that_is_not_there(draft: DraftFile, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be written"):
        draft_file.write_draft_file(tmp_path / "absent" / DRAFT_FILE, draft)


def test_which_paths_are_draft_files(draft: DraftFile, tmp_path: Path) -> None:
    assert not is_draft_file(tmp_path)
    assert not is_draft_file(tmp_path / "absent")
    assert is_draft_file(tmp_path / "mine.safetensors")  # whether it is there, reading tells
    draft_file.write_draft_file(tmp_path / DRAFT_FILE, draft)
    assert is_draft_file(tmp_path)


@pytest.mark.parametrize("keep", [0, 7, 100, -5])
def test_damaged_files(draft: DraftFile, tmp_path: Path, keep: int) -> None:
    path = tmp_path / DRAFT_FILE
    draft_file.write_draft_file(path, draft)
    path.write_bytes(path.read_bytes()[:keep])
    assert f"{path} cannot be read" in refusal(path)


def test_no_file(tmp_path: Path) -> None:
    assert "cannot be read" in refusal(tmp_path / "absent.safetensors")


@pytest.mark.parametrize("change", [{"format": "2"}, {"format": None}])
def test_another_format(tmp_path: Path, change: dict[str, str | None]) -> None:
    save(tmp_path / DRAFT_FILE, change, {"head_ids": torch.tensor([1])})
    assert "was not written by `foredraft train`" in refusal(tmp_path)


def test_another_models_weights(tmp_path: Path) -> None:
    save(tmp_path / "model.safetensors", {}, {"norm.weight": torch.ones(3)})
    assert "was not written by" in refusal(tmp_path / "model.safetensors")
    save_file({"norm.weight": torch.ones(3)}, tmp_path / "model.safetensors")
    assert "was not written by" in refusal(tmp_path / "model.safetensors")


@pytest.mark.parametrize(
    "change",
    [
        {"kind": None},
        {"config": None},
        {"config": "{"},
        {"config": "[]"},
        {"config": '{"model_type": "llama", "num_hidden_layers": 1}'},
        {"config": '{"hidden_size": 4, "num_hidden_layers": 1}'},
        {"reads_states": "yes"},
        {"num_draft_tokens": "a"},
        {"num_draft_tokens": "null"},
        {"num_draft_tokens": "2.5"},
        {"num_draft_tokens": "0"},
        {"num_draft_tokens": "33"},
    ],
)
def test_damaged_metadata(tmp_path: Path, change: dict[str, str | None]) -> None:
    save(tmp_path / DRAFT_FILE, change, {"head_ids": torch.tensor([1])})
    assert "its metadata are damaged" in refusal(tmp_path)


def test_a_head_of_its_own_that_is_missing(tmp_path: Path) -> None:
    save(tmp_path / DRAFT_FILE, {"own_head": "true"}, {"head_ids": torch.tensor([1])})
    assert "tensors are missing: head.weight" in refusal(tmp_path)


@pytest.mark.parametrize(
    "head_ids", [torch.tensor([[1]]), torch.tensor(1), torch.tensor([1.0]), torch.tensor([1]).int()]
)
def test_head_ids_of_another_kind(tmp_path: Path, head_ids: Tensor) -> None:
    """Other whole numbers would load, and then every step would be a fault of the proposer."""
    save(tmp_path / DRAFT_FILE, {}, {"head_ids": head_ids})
    assert "not 1-d int64" in refusal(tmp_path)


def test_weights_that_are_no_numbers(tmp_path: Path) -> None:
    tensors = {"head_ids": torch.tensor([1]), "norm.weight": torch.tensor([1.0, float("nan")])}
    save(tmp_path / DRAFT_FILE, {}, tensors)
    assert "norm.weight has values that are not finite" in refusal(tmp_path)


def save(path: Path, change: dict[str, str | None], tensors: dict[str, Tensor]) -> None:
    metadata = {name: value for name, value in (METADATA | change).items() if value is not None}
    save_file(tensors, path, metadata)


def test_tensors_are_stored_under_their_names(draft: DraftFile, tmp_path: Path) -> None:
    """The file is plain safetensors, for others to read."""
    draft_file.write_draft_file(tmp_path / DRAFT_FILE, draft)
    assert load_file(tmp_path / DRAFT_FILE).keys() == {*draft.tensors, "head_ids"}


# ---- exit heads


EXIT = {"kind": "exit", "exit_layer": "3"}


def exit_refusal(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        read_exit_file(path)
    assert str(caught.value).startswith("early_exit.head: ")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_an_exit_head_comes_back_with_its_layer(draft: DraftFile, tmp_path: Path) -> None:
    head = replace(draft, kind="exit", exit_layer=12)
    draft_file.write_draft_file(tmp_path / EXIT_FILE, head)
    for path in (tmp_path, tmp_path / EXIT_FILE):
        read = read_exit_file(path)
        for field in fields(DraftFile):
            if field.name not in ("tensors", "head_ids"):
                assert getattr(read, field.name) == getattr(head, field.name)
        assert torch.equal(read.head_ids, head.head_ids)
        assert read.tensors.keys() == head.tensors.keys()


def test_a_folder_may_hold_both_kinds(draft: DraftFile, tmp_path: Path) -> None:
    draft_file.write_draft_file(tmp_path / DRAFT_FILE, draft)
    draft_file.write_draft_file(tmp_path / EXIT_FILE, replace(draft, kind="exit", exit_layer=1))
    assert (read_draft_file(tmp_path).kind, read_exit_file(tmp_path).kind) == ("draft", "exit")


def test_one_kind_is_not_the_other(draft: DraftFile, tmp_path: Path) -> None:
    draft_file.write_draft_file(tmp_path / "draft.safetensors", draft)
    draft_file.write_draft_file(tmp_path / "exit.safetensors", replace(draft, kind="exit", exit_layer=1))
    assert "kind 'draft', not 'exit'" in exit_refusal(tmp_path / "draft.safetensors")
    assert "kind 'exit', not 'draft'" in refusal(tmp_path / "exit.safetensors")


@pytest.mark.parametrize("change", [{"kind": "draft"}, {"exit_layer": None}, {"exit_layer": "null"}])
def test_a_kind_and_its_layer_belong_together(tmp_path: Path, change: dict[str, str | None]) -> None:
    save(tmp_path / EXIT_FILE, EXIT | change, {"head_ids": torch.tensor([1])})
    message = exit_refusal(tmp_path)
    assert "kind 'draft', not 'exit'" in message if "kind" in change else "exit_layer" in message


def test_a_draft_with_an_exit_layer_is_damaged(tmp_path: Path) -> None:
    save(tmp_path / DRAFT_FILE, {"exit_layer": "3"}, {"head_ids": torch.tensor([1])})
    assert "exit_layer" in refusal(tmp_path)


@pytest.mark.parametrize("exit_layer", ["0", "-1", "x", "", "2.5", "true", "[1]", '"3"', "1e400"])
def test_a_damaged_exit_layer(tmp_path: Path, exit_layer: str) -> None:
    save(tmp_path / EXIT_FILE, EXIT | {"exit_layer": exit_layer}, {"head_ids": torch.tensor([1])})
    assert "its metadata are damaged: exit_layer" in exit_refusal(tmp_path)


@pytest.mark.parametrize("change", [{"config": None}, {"reads_states": "yes"}, {"num_draft_tokens": "0"}])
def test_damaged_metadata_of_an_exit_head(tmp_path: Path, change: dict[str, str | None]) -> None:
    save(tmp_path / EXIT_FILE, EXIT | change, {"head_ids": torch.tensor([1])})
    assert "its metadata are damaged" in exit_refusal(tmp_path)


@pytest.mark.parametrize("keep", [0, 7, 100, -5])
def test_damaged_files_of_exit_heads(draft: DraftFile, tmp_path: Path, keep: int) -> None:
    path = tmp_path / EXIT_FILE
    draft_file.write_draft_file(path, replace(draft, kind="exit", exit_layer=1))
    path.write_bytes(path.read_bytes()[:keep])
    assert f"{path} cannot be read" in exit_refusal(path)


def test_a_file_of_another_program_is_no_exit_head(tmp_path: Path) -> None:
    save_file({"norm.weight": torch.ones(3)}, tmp_path / EXIT_FILE)
    assert "was not written by" in exit_refusal(tmp_path)
    assert "is not there; name" in exit_refusal(tmp_path / "absent")
