"""Loading small random models from folders, and one clear line for everything that cannot be loaded."""

from __future__ import annotations

import gc
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from huggingface_hub import constants
from huggingface_hub.errors import LocalEntryNotFoundError
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from foredraft.integration.errors import UserError
from foredraft.integration.models import hub
from foredraft.integration.models.loading import LoadedModel, eos_token_ids, load_model

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("toys")
    save_toy(root / "plain", tie=False)
    save_toy(root / "tied", tie=True)
    return root


@pytest.fixture
def toy(toys: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(toys / "plain", tmp_path / "toy"))


def save_toy(folder: Path, *, tie: bool) -> None:
    config = LlamaConfig(
        vocab_size=97,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        eos_token_id=None,
        tie_word_embeddings=tie,
    )
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)


def load(folder: Path | str, dtype: torch.dtype = torch.float32) -> LoadedModel:
    return load_model(str(folder), dtype, CPU)


def refusal(name: Path | str) -> str:
    with pytest.raises(UserError) as caught:
        load(name)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("model: ")
    return str(caught.value)


def edit_config(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def edit_tensors(folder: Path, **values: torch.Tensor | None) -> None:
    tensors = load_file(folder / "model.safetensors") | values
    kept = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize("name", ["plain", "tied"])
def test_folder_is_loaded_ready_to_serve(toys: Path, name: str) -> None:
    loaded = load(toys / name)
    saved = load_file(toys / name / "model.safetensors")
    assert torch.equal(loaded.model.model.norm.weight, saved["model.norm.weight"])
    assert not loaded.model.training
    assert not any(parameter.requires_grad for parameter in loaded.model.parameters())
    assert (loaded.tokenizer, loaded.name) == (None, str(toys / name))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dtype_is_the_one_asked_for(toys: Path, dtype: torch.dtype) -> None:
    assert {parameter.dtype for parameter in load(toys / "plain", dtype).model.parameters()} == {dtype}


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_collector_is_left_as_it_was(toys: Path, tmp_path: Path, enabled: bool) -> None:
    """Also after a refusal: a server without it would grow for ever."""
    try:
        (gc.enable if enabled else gc.disable)()
        load(toys / "plain")
        after_loading = gc.isenabled()
        refusal(tmp_path)
        assert (after_loading, gc.isenabled()) == (enabled, enabled)
    finally:
        gc.enable()


def test_loading_is_silent(toys: Path, capfd: pytest.CaptureFixture[str]) -> None:
    load(toys / "plain")
    assert capfd.readouterr() == ("", "")


def test_tokenizer_of_the_folder_is_loaded(toy: Path) -> None:
    add_tokenizer(toy)
    tokenizer = load(toy).tokenizer
    assert tokenizer is not None
    assert tokenizer.encode("b a") == [1, 0]


def add_tokenizer(folder: Path) -> None:
    words = Tokenizer(models.WordLevel({"a": 0, "b": 1, "<end>": 2}, unk_token="a"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>").save_pretrained(folder)


def test_broken_tokenizer_is_refused(toy: Path) -> None:
    (toy / "tokenizer.json").write_text("{")
    assert "the tokenizer of" in refusal(toy)


def test_folder_without_config(tmp_path: Path) -> None:
    assert "it has no config.json" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("text", "said"), [("{", "not valid JSON"), ("[]", "needs a mapping"), ("{}", "no model_type")]
)
def test_bad_config(toy: Path, text: str, said: str) -> None:
    (toy / "config.json").write_text(text)
    assert said in refusal(toy)


def test_unknown_architecture(toy: Path) -> None:
    edit_config(toy, model_type="frobnicate")
    assert "unknown architecture 'frobnicate'" in refusal(toy)


@pytest.mark.parametrize(
    ("kind", "head"),
    [("t5", "T5ForConditionalGeneration"), ("bert", "BertForMaskedLM"), ("llama", "LlamaModel")],
)
def test_other_kinds_of_model(toy: Path, kind: str, head: str) -> None:
    edit_config(toy, model_type=kind, architectures=[head])
    assert f"{head} is not a causal language model" in refusal(toy)


def test_missing_tensors_are_named(toy: Path) -> None:
    """transformers fills them with random values and only warns."""
    layers = {f"model.layers.1.mlp.{part}_proj.weight": None for part in ("up", "down", "gate")}
    edit_tensors(toy, **layers, **{"lm_head.weight": None})
    message = refusal(toy)
    assert "tensors are missing: lm_head.weight, model.layers.1.mlp.down_proj.weight" in message
    assert message.endswith("and 1 more")


def test_tensor_of_another_shape_is_named(toy: Path) -> None:
    edit_tensors(toy, **{"model.norm.weight": torch.ones(5)})
    assert "model.norm.weight (5,) not (64,)" in refusal(toy)


def test_cut_weights(toy: Path) -> None:
    weights = (toy / "model.safetensors").read_bytes()
    (toy / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    assert "cannot be loaded" in refusal(toy)


def test_folder_without_weights(toy: Path) -> None:
    (toy / "model.safetensors").unlink()
    assert "no file named model.safetensors" in refusal(toy)


@pytest.mark.parametrize("content", [b"", b"GGUF" + bytes(40), b"hello"])
def test_bad_gguf(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.gguf").write_bytes(content)
    assert "bad.gguf cannot be loaded" in refusal(tmp_path / "bad.gguf")


def test_file_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"x")
    assert "not a .gguf one" in refusal(tmp_path / "model.bin")


@pytest.mark.parametrize("name", ["./absent", "/absent", "a/b/c", "absent model", "absent/model.gguf/x"])
def test_name_that_can_be_nothing(name: str) -> None:
    message = refusal(name)
    assert "neither a folder, a file nor a hub id" in message
    assert "smollm2-135m" in message


def test_hub_model_is_loaded_from_its_folder(toys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "snapshot_download", lambda name, allow_patterns: str(toys / "plain"))
    loaded = load("someone/something")
    assert loaded.name == "someone/something"


def test_hub_id_not_cached_and_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "the hub cannot be reached" in refusal("smollm2-136m")


def test_hub_fault_is_a_user_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str, allow_patterns: list[str]) -> str:
        raise LocalEntryNotFoundError("long\ntext")

    monkeypatch.setattr(hub, "snapshot_download", fail)
    assert "'someone/something'" in refusal("someone/something")


@pytest.mark.parametrize(
    ("generation", "config", "tokenizer", "ids"),
    [
        (None, None, None, set()),
        (2, None, None, {2}),
        ([2, 5], 9, None, {2, 5}),
        (None, 9, None, {9}),
        (2, 2, 7, {2, 7}),
        (None, None, 0, {0}),
    ],
)
def test_eos_token_ids(generation: Any, config: Any, tokenizer: Any, ids: set[int]) -> None:
    text_config = SimpleNamespace(eos_token_id=config)
    model = SimpleNamespace(
        generation_config=SimpleNamespace(eos_token_id=generation),
        config=SimpleNamespace(get_text_config=lambda: text_config),
    )
    assert eos_token_ids(model, SimpleNamespace(eos_token_id=tokenizer)) == ids  # type: ignore[arg-type]


def test_eos_of_a_toy_without_one(toys: Path) -> None:
    assert eos_token_ids(load(toys / "plain").model, None) == frozenset()
