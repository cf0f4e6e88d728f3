"""Heads and options that an engine refuses, each by name."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from toy_drafts import toy_target, trained_draft
from toy_exits import NUM_LAYERS, exit_config, exit_model, refusal, trained_exit, written_exit
from toys import family_model, random_prompts, run_tokens

from foredraft.integration.config import Config
from foredraft.integration.embedded.build import build_engine
from foredraft.integration.embedded.forward import prepare_model
from foredraft.integration.embedded.target import Target
from foredraft.integration.errors import UserError
from foredraft.integration.models.draft_file import DRAFT_FILE, EXIT_FILE, TRAINING_FILE, DraftFile
from foredraft.integration.sampling_params import SamplingParams

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
PROMPTS = random_prompts(5, seed=6, longest=30)
MODEL = exit_model()


@pytest.fixture(scope="module")
def target() -> Target:
    return toy_target(MODEL)


@pytest.mark.parametrize("family", ["Phi", "GPTNeoX"])
def test_a_family_outside_the_table_is_refused_by_name(family: str, tmp_path: Path) -> None:
    """F181: and runs without an exit, drafting or not."""
    model = family_model(family, num_key_value_heads=4)
    target = toy_target(model, prepared=prepare_model(copy.deepcopy(model)), max_len=256)
    path = written_exit(tmp_path, trained_exit(MODEL, 1, target_fingerprint=target.fingerprint))
    for config in (exit_config("own", 2), exit_config(path)):
        message = refusal(config, target)
        assert message.startswith("proposer: early_exit ")
        assert model.config.model_type in message
        for known in ("llama", "mistral", "qwen2", "qwen3", "gemma", "gpt2"):
            assert known in message
    outputs = [
        run_tokens(build_engine(exit_config(proposer=name), target), PROMPTS, GREEDY)
        for name in ("none", "ngram")
    ]
    assert outputs[0] == outputs[1]


def test_no_head_is_named_and_none_comes_with_the_model(target: Target) -> None:
    message = refusal(exit_config(), target)
    assert message.startswith("early_exit.head: none is given")
    assert "foredraft train exit" in message


def test_a_head_that_is_not_there(target: Target, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent", tmp_path / "absent.safetensors"):
        message = refusal(exit_config(path), target)
        assert message.startswith("early_exit.head: ")
        assert str(path) in message


def test_a_head_of_another_target_is_refused(target: Target, tmp_path: Path) -> None:
    file = trained_exit(MODEL, 1, target="some-other", target_fingerprint="f" * 32)
    message = refusal(exit_config(written_exit(tmp_path, file)), target)
    assert message.startswith("early_exit.head: ")
    assert "was trained for 'some-other' (weights ffffffff)" in message
    assert target.fingerprint[:8] in message


def test_a_head_of_another_layer_is_refused(target: Target, tmp_path: Path) -> None:
    message = refusal(exit_config(written_exit(tmp_path, trained_exit(MODEL, 1)), 2), target)
    assert message.startswith("early_exit.exit_layer: ")
    assert "was made for layer 1, got 2" in message


@pytest.mark.parametrize("exit_layer", [NUM_LAYERS, NUM_LAYERS + 1])
def test_a_head_behind_the_last_layer_is_refused(target: Target, tmp_path: Path, exit_layer: int) -> None:
    file = replace(trained_exit(MODEL, 1), exit_layer=exit_layer)
    message = refusal(exit_config(written_exit(tmp_path, file)), target)
    assert message.startswith("early_exit.head: ")
    assert f"leaves after layer {exit_layer}, the model has {NUM_LAYERS}" in message


def test_an_own_exit_behind_the_last_layer_is_refused(target: Target) -> None:
    message = refusal(exit_config("own", NUM_LAYERS + 1), target)
    assert message.startswith("early_exit.exit_layer: ")
    assert message.endswith(f"after 1 to {NUM_LAYERS} layers, got {NUM_LAYERS + 1}")


def test_each_kind_of_file_in_the_place_of_the_other(target: Target, tmp_path: Path) -> None:
    draft = written_exit(tmp_path, trained_draft(MODEL), DRAFT_FILE) / DRAFT_FILE
    message = refusal(exit_config(draft), target)
    assert message.startswith("early_exit.head: ")
    assert "'draft', not 'exit'" in message
    head = written_exit(tmp_path, trained_exit(MODEL, 1)) / EXIT_FILE
    message = refusal(exit_config(proposer="draft", draft={"model": str(head)}), target)
    assert message.startswith("draft.model: ")
    assert "'exit', not 'draft'" in message


def test_a_trained_folder_of_each_kind_in_the_place_of_the_other(target: Target, tmp_path: Path) -> None:
    """Folders as ``foredraft train`` leaves them, with the settings of the training in them."""
    for name in ("exit", "draft"):
        (tmp_path / name).mkdir()
        (tmp_path / name / TRAINING_FILE).write_text("{}")
    head = written_exit(tmp_path / "exit", trained_exit(MODEL, 1))
    draft = written_exit(tmp_path / "draft", trained_draft(MODEL), DRAFT_FILE)
    message = refusal(exit_config(draft), target)
    assert message.startswith("early_exit.head: ")
    message = refusal(exit_config(proposer="draft", draft={"model": str(head)}), target)
    assert message.startswith("draft.model: ")
    assert "is not finished" not in message


def test_a_training_that_is_not_finished(target: Target, tmp_path: Path) -> None:
    (tmp_path / TRAINING_FILE).write_text("{}")
    message = refusal(exit_config(tmp_path), target)
    assert message.startswith("early_exit.head: ")
    assert "is not finished" in message


@pytest.mark.parametrize("change", [{"num_key_value_heads": 4}, {"num_attention_heads": 2, "head_dim": 32}])
def test_a_head_with_other_key_heads_is_refused(
    target: Target, tmp_path: Path, change: dict[str, int]
) -> None:
    """It would not fit into the target's cache."""
    torch.manual_seed(0)
    config = copy.deepcopy(MODEL.config)
    for name, value in change.items():
        setattr(config, name, value)
    other = type(MODEL)(config)
    other.lm_head.weight.data[:] = MODEL.lm_head.weight
    file = trained_exit(other, 1, target_fingerprint=target.fingerprint)
    message = refusal(exit_config(written_exit(tmp_path, file)), target)
    assert message.startswith("early_exit.head: ")
    assert "do not fit the model's (2, 16)" in message


def spoiled(file: DraftFile, **changes: Any) -> DraftFile:
    """With some tensors replaced, or left out where ``None``."""
    tensors = file.tensors | changes
    return replace(file, tensors={name: one for name, one in tensors.items() if one is not None})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"layers.0.mlp.up_proj.weight": None}, "tensors are missing: layers.0.mlp.up_proj.weight"),
        ({"norm.weight": None}, "tensors are missing: norm.weight"),
        ({"state_norm.weight": None}, "tensors are missing: state_norm.weight"),
        ({"layers.1.extra": torch.ones(2)}, "tensors are unknown: layers.1.extra"),
        ({"head.weight": torch.ones(9, 64)}, "head.weight"),
        ({"input_proj.weight": torch.ones(64, 64)}, "input_proj.weight"),
    ],
)
def test_files_with_other_tensors_are_refused(
    target: Target, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    file = spoiled(trained_exit(MODEL, 1, reads_states=True), **changes)
    message = refusal(exit_config(written_exit(tmp_path, file)), target)
    assert message.startswith("early_exit.head: ")
    assert said in message


@pytest.mark.parametrize("exit_layer", ["0", "-1", "x", "2.5", "true", "null", "[1]", "", None])
def test_a_damaged_exit_layer(target: Target, tmp_path: Path, exit_layer: str | None) -> None:
    path = written_exit(tmp_path, trained_exit(MODEL, 1)) / EXIT_FILE
    change_metadata(path, lambda metadata: metadata | {"exit_layer": exit_layer})
    message = refusal(exit_config(path), target)
    assert message.startswith("early_exit.head: ")


@pytest.mark.parametrize("change", [{"hidden_size": 32}, {"model_type": "gpt2"}, {"model_type": 5}])
def test_a_file_with_other_layers_is_refused(target: Target, tmp_path: Path, change: dict[str, Any]) -> None:
    path = written_exit(tmp_path, trained_exit(MODEL, 1)) / EXIT_FILE

    def changed(metadata: dict[str, Any]) -> dict[str, Any]:
        return metadata | {"config": json.dumps(json.loads(metadata["config"]) | change)}

    change_metadata(path, changed)
    assert refusal(exit_config(path), target).startswith("early_exit.head: ")


def change_metadata(path: Path, changed: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Rewrite the file's header texts; ``None`` leaves one out."""
    with safe_open(path, framework="pt") as file:
        metadata = changed(file.metadata())
    given = {name: text for name, text in metadata.items() if text is not None}
    save_file(load_file(path), path, given)


@pytest.mark.parametrize("name", ["~no_such_user/x", "a" * 300, "nowhere"])
def test_a_path_that_leads_nowhere(target: Target, tmp_path: Path, name: str) -> None:
    message = refusal(exit_config(name), target)
    assert message.startswith("early_exit.head: ")
    assert name in message


def test_weights_that_the_targets_dtype_cannot_hold(target: Target, tmp_path: Path) -> None:
    file = trained_exit(MODEL, 1)
    huge = file.tensors["norm.weight"].double().fill_(1e300)
    path = written_exit(tmp_path, replace(file, tensors=file.tensors | {"norm.weight": huge}))
    assert "norm.weight has values that float32 cannot hold" in refusal(exit_config(path), target)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"head": "own"}, "exit_layer must be given"),
        ({"head": "own", "exit_layer": 0}, "early_exit.exit_layer"),
        ({"exit_layer": -1}, "early_exit.exit_layer"),
        ({"exit_layer": 1001}, "early_exit.exit_layer"),
        ({"exit_layer": "2"}, "early_exit.exit_layer"),
        ({"exit_layer": True}, "early_exit.exit_layer"),
        ({"head": ""}, "early_exit.head"),
        ({"min_confidence": 1.0}, "early_exit.min_confidence"),
        ({"min_confidence": -0.1}, "early_exit.min_confidence"),
        ({"min_confidence": float("nan")}, "early_exit.min_confidence"),
        ({"exit_layers": 2}, "early_exit.exit_layers"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError) as caught:
        Config(proposer="early_exit", early_exit=options)
    assert "early_exit" in str(caught.value)
    assert named in str(caught.value)
