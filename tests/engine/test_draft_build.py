"""From a configuration to an engine with a draft: what works, what is counted, what is refused and how."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from toy_drafts import trained_draft
from toys import byte_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from foredraft.integration.config import Config
from foredraft.integration.draft_lengths import MODEL_DRAFT_TOKENS
from foredraft.integration.embedded.build import build_engine, load_target
from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.embedded.draft_loading import load_draft
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.embedded.target import Target
from foredraft.integration.errors import UserError
from foredraft.integration.models.draft_file import DRAFT_FILE, DraftFile, write_draft_file
from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers.draft_model import DraftModelProposer

# The byte tokenizer has 257 ids. The target is padded to 264; drafts are padded to more, fewer or as many.
TARGET_VOCAB = 264
DRAFT_VOCABS = {"as many": TARGET_VOCAB, "more": 300, "fewer": 258}
PROMPTS = ["to be or not to be", "aaa", [260, 5, 7, 5], "the mill by the stream " * 3]
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)


def toy_llama(
    vocab_size: int, *, max_len: int = 128, num_layers: int = 2, tied: bool = False
) -> LlamaForCausalLM:
    """The first tokens have the same weights for every ``vocab_size``: one drafts well for the other."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=num_layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=max_len,
        initializer_range=0.2,
        tie_word_embeddings=tied,
    )
    model = LlamaForCausalLM(config).eval().requires_grad_(False)
    for number, parameter in enumerate(model.parameters()):
        generator = torch.Generator().manual_seed(number)
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    for name, parameter in model.named_parameters():
        if name.endswith("norm.weight"):
            parameter.fill_(1.0)
    return model


def save(model: LlamaForCausalLM, folder: Path) -> Path:
    model.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    save(toy_llama(TARGET_VOCAB), root / "target")
    for name, vocab_size in DRAFT_VOCABS.items():
        model = toy_llama(vocab_size)
        model.lm_head.weight[TARGET_VOCAB:] *= 10  # what the target lacks would be drafted first
        save(model, root / name)
    save(toy_llama(TARGET_VOCAB, max_len=40), root / "short")
    return root


@pytest.fixture(scope="module")
def target(folders: Path) -> Target:
    return load_target(config_of(folders))


@pytest.fixture
def draft_folder(folders: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(folders / "as many", tmp_path / "draft"))


def config_of(folders: Path, model: Path | str | None = None, **values: Any) -> Config:
    draft = {"model": None if model is None else str(model)} | values.pop("draft", {})
    given: dict[str, Any] = {
        "model": str(folders / "target"),
        "dtype": "float32",
        "device": "cpu",
        "proposer": "draft",
        "engine": {"max_num_seqs": 3},
    }
    return Config(**(given | values), draft=draft)


def outputs(engine: EmbeddedEngine, params: SamplingParams = GREEDY) -> list[list[int]]:
    return [one.outputs[0].token_ids for one in engine.generate(PROMPTS, params)]


def plain_outputs(folders: Path, target: Target) -> list[list[int]]:
    return outputs(build_engine(config_of(folders, proposer="none"), target))


def draft_decoder_of(engine: EmbeddedEngine) -> SlotDecoder:
    assert isinstance(engine.proposer, DraftModelProposer)
    assert isinstance(engine.proposer.decoder, SlotDecoder)
    return engine.proposer.decoder


def refusal(folders: Path, target: Target, model: Path | str | None, **values: Any) -> str:
    with pytest.raises(UserError) as caught:
        build_engine(config_of(folders, model, **values), target)
    message = str(caught.value)
    assert "\n" not in message
    return message


# ---- a whole model as draft


@pytest.mark.parametrize("name", [*DRAFT_VOCABS, "short"])
def test_a_model_drafts(folders: Path, target: Target, name: str) -> None:
    """Padded vocabularies of any size, a context shorter than the target's (F63, F69, F71)."""
    engine = build_engine(config_of(folders, folders / name), target)
    assert outputs(engine) == plain_outputs(folders, target)
    assert outputs(engine, SamplingParams(temperature=1.0, max_tokens=8, ignore_eos=True))
    metrics = engine.metrics
    assert metrics.num_proposer_faults == 0
    assert metrics.num_accepted_tokens > 0.3 * metrics.num_drafted_tokens > 0
    assert engine.num_draft_tokens == MODEL_DRAFT_TOKENS


def test_the_draft_follows_its_own_options(folders: Path, target: Target) -> None:
    """F3, F77, F135, F171, F173."""
    own = {"dtype": "bfloat16", "device": "cpu", "min_confidence": 0.5}
    config = config_of(folders, folders / "short", num_draft_tokens=2, draft=own)
    engine = build_engine(config, target)
    decoder = draft_decoder_of(engine)
    assert (decoder.prepared.dtype, decoder.device.type) == (torch.bfloat16, "cpu")
    assert (decoder.max_len, decoder.capacity, decoder.cache.keys.dtype) == (40, 40, torch.bfloat16)
    assert engine.num_draft_tokens == 2
    assert outputs(engine) == plain_outputs(folders, target)
    beside = draft_decoder_of(build_engine(config_of(folders, folders / "short"), target))
    assert (beside.prepared.dtype, beside.device) == (target.dtype, target.device)


def test_another_tokenizer_is_refused(folders: Path, target: Target, draft_folder: Path) -> None:
    """F63: as large, but two ids mean other things."""
    path = draft_folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    vocab = tokenizer["model"]["vocab"]
    names = {token_id: token for token, token_id in vocab.items()}
    vocab[names[40]], vocab[names[90]] = 90, 40
    path.write_text(json.dumps(tokenizer))
    message = refusal(folders, target, draft_folder)
    assert f"token 40 is {names[90]!r} for the draft, {names[40]!r} for the target" in message


def test_missing_tensors_are_refused(folders: Path, target: Target, draft_folder: Path) -> None:
    path = draft_folder / "model.safetensors"
    tensors = load_file(path)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, path, metadata={"format": "pt"})
    message = refusal(folders, target, draft_folder)
    assert message.startswith("draft.model: ")
    assert "tensors are missing: model.layers.1.mlp.up_proj.weight" in message


@pytest.mark.parametrize(
    ("draft", "said"),
    [
        ({"device": "cuda:99"}, "draft.device: cuda:99 is not there"),
        ({"dtype": "float16"}, "draft.dtype: float16 does not run on device cpu"),
    ],
)
def test_places_that_cannot_be(folders: Path, target: Target, draft: dict[str, str], said: str) -> None:
    assert said in refusal(folders, target, folders / "as many", draft=draft)


def test_no_draft_is_named_and_none_comes_with_the_model(folders: Path, target: Target) -> None:
    message = refusal(folders, target, None)
    assert message.startswith("draft.model: none is given")
    assert "foredraft train draft" in message


def test_a_model_that_is_not_there(folders: Path, target: Target) -> None:
    assert refusal(folders, target, "./absent").startswith("draft.model: ")
    assert refusal(folders, target, folders / "absent.safetensors").startswith("draft.model: ")


# ---- memory


def bytes_per_position(decoder: SlotDecoder) -> int:
    caches = [decoder.cache.keys, decoder.cache.values]
    stores = [] if decoder._states is None else [decoder._states.states]
    num_bytes = sum(one.numel() * one.element_size() for one in [*caches, *stores])
    return num_bytes // (decoder.num_rows * decoder.capacity)


@pytest.mark.parametrize("kind", ["a model", "reads states"])
def test_the_drafts_memory_is_counted(folders: Path, target: Target, tmp_path: Path, kind: str) -> None:
    """What the plan says is what is allocated: cache of the target, cache of the draft, states (F123)."""
    model = folders / "as many"
    if kind == "reads states":
        model = write(tmp_path, file_for(target))
    engine = build_engine(config_of(folders, model), target)
    assert isinstance(engine.decoder, SlotDecoder)
    needed = bytes_per_position(engine.decoder) + bytes_per_position(draft_decoder_of(engine))
    exact = {"max_num_seqs": 3, "kv_cache_memory_gb": needed * 128 * 2 / 1e9}
    assert build_engine(config_of(folders, model, engine=exact), target).decoder.num_rows == 2
    too_small = exact | {"kv_cache_memory_gb": (needed * 128 - 1) / 1e9}
    message = refusal(folders, target, model, engine=too_small)
    assert f"needs {needed * 128 / 1e9:.3f}" in message
    assert "set engine.max_model_len to at most 127" in message
    assert build_engine(config_of(folders, proposer="none", engine=too_small), target).decoder.num_rows >= 1


# ---- a trained draft


def file_for(target: Target, **values: Any) -> DraftFile:
    given: dict[str, Any] = {"target_fingerprint": target.fingerprint, "num_draft_tokens": 3}
    return trained_draft(toy_llama(TARGET_VOCAB), **(given | values))


def write(folder: Path, draft: DraftFile) -> Path:
    write_draft_file(folder / DRAFT_FILE, draft)
    return folder


@pytest.mark.parametrize("reads_states", [False, True])
@pytest.mark.parametrize("trimmed", [False, True])
def test_a_trained_draft_drafts(
    folders: Path, target: Target, tmp_path: Path, reads_states: bool, trimmed: bool
) -> None:
    """As many tokens as its file says; of a trimmed head no other token ever (F173)."""
    head_ids = torch.arange(0, TARGET_VOCAB, 2) if trimmed else None
    folder = write(tmp_path, file_for(target, reads_states=reads_states, head_ids=head_ids))
    for model in (folder, folder / DRAFT_FILE):
        engine = build_engine(config_of(folders, model), target)
        assert engine.num_draft_tokens == 3
        assert outputs(engine) == plain_outputs(folders, target)
        assert engine.metrics.num_proposer_faults == 0
        assert engine.metrics.num_accepted_tokens > 0
    if not reads_states and not trimmed:
        # All of the target's layers, embedding and head: the target itself.
        assert engine.metrics.num_accepted_tokens == engine.metrics.num_drafted_tokens


def test_a_tied_target_gives_its_embedding_as_head(tmp_path: Path) -> None:
    model = toy_llama(TARGET_VOCAB, tied=True)
    save(model, tmp_path / "target")
    config = config_of(tmp_path, tmp_path)
    tied = load_target(config)
    draft = trained_draft(model, reads_states=False, target_fingerprint=tied.fingerprint)
    tensors = {name: tensor for name, tensor in draft.tensors.items() if name != "head.weight"}
    write(tmp_path, replace(draft, tensors=tensors))
    engine = build_engine(config, tied)
    assert outputs(engine) == plain_outputs(tmp_path, tied)
    assert engine.metrics.num_accepted_tokens == engine.metrics.num_drafted_tokens > 0


def test_a_draft_of_another_target_is_refused(folders: Path, target: Target, tmp_path: Path) -> None:
    folder = write(tmp_path, replace(file_for(target), target="some-other", target_fingerprint="f" * 32))
    message = refusal(folders, target, folder)
    assert "was trained for 'some-other' (weights ffffffff)" in message
    assert target.fingerprint[:8] in message


def spoiled(draft: DraftFile, **changes: Any) -> DraftFile:
    """With some tensors replaced, or left out where ``None``."""
    tensors = draft.tensors | changes
    return replace(draft, tensors={name: one for name, one in tensors.items() if one is not None})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"layers.1.mlp.up_proj.weight": None}, "tensors are missing: layers.1.mlp.up_proj.weight"),
        ({"state_norm.weight": None}, "tensors are missing: state_norm.weight"),
        ({"layers.7.extra": torch.ones(2)}, "tensors are unknown: layers.7.extra"),
        ({"norm.weight": torch.ones(5)}, "norm.weight"),
        ({"head.weight": torch.ones(TARGET_VOCAB, 9)}, "head.weight"),
        ({"head.weight": torch.ones(9, 64)}, "head.weight"),
        ({"input_proj.weight": torch.ones(64, 64)}, "input_proj.weight"),
        ({"embed_norm.weight": torch.ones(3)}, "embed_norm.weight"),
    ],
)
def test_files_with_other_tensors_are_refused(
    folders: Path, target: Target, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    message = refusal(folders, target, write(tmp_path, spoiled(file_for(target), **changes)))
    assert message.startswith("draft.model: ")
    assert said in message


@pytest.mark.parametrize("head_ids", [[0, TARGET_VOCAB], [-1, 3], [5, 3], [3, 3], []])
def test_a_head_of_impossible_tokens_is_refused(
    folders: Path, target: Target, tmp_path: Path, head_ids: list[int]
) -> None:
    ids = torch.tensor(head_ids, dtype=torch.int64)
    draft = file_for(target)
    head = draft.tensors["head.weight"][: len(ids)]
    draft = replace(spoiled(draft, **{"head.weight": head}), head_ids=ids)
    message = refusal(folders, target, write(tmp_path, draft))
    assert message.startswith("draft.model: ")
    assert "head_ids are not increasing token ids" in message


@pytest.mark.parametrize("change", [{"hidden_size": 32}, {"model_type": "gpt2"}, {"num_attention_heads": 8}])
def test_a_file_with_other_layers_is_refused(
    folders: Path, target: Target, tmp_path: Path, change: dict[str, Any]
) -> None:
    draft = file_for(target)
    draft = replace(draft, layers_config=draft.layers_config | change)
    assert refusal(folders, target, write(tmp_path, draft)).startswith("draft.model: ")


def test_a_file_of_another_kind_is_refused(folders: Path, target: Target, tmp_path: Path) -> None:
    folder = write(tmp_path, replace(file_for(target), kind="early_exit"))
    assert "draft.model: " in refusal(folders, target, folder)
    assert "'early_exit'" in refusal(folders, target, folder)


def test_a_loaded_draft_says_what_it_is(folders: Path, target: Target, tmp_path: Path) -> None:
    loaded = load_draft(config_of(folders, write(tmp_path, file_for(target))), target)
    assert (loaded.reads_states, loaded.num_draft_tokens) == (True, 3)
    assert (loaded.max_len, loaded.vocab_size) == (target.max_len, target.vocab_size)
