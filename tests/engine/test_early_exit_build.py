"""From a configuration to an engine with an early exit: what works, what it takes, what is refused."""

from __future__ import annotations

import copy
import gc
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
from toy_exits import NUM_LAYERS, exit_model, trained_exit
from toys import TOY_VOCAB, family_model, random_prompts, run_tokens, toy_model

from foredraft.integration.config import Config
from foredraft.integration.draft_lengths import MODEL_DRAFT_TOKENS
from foredraft.integration.embedded.build import _bytes_per_position, build_engine
from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.embedded.exit_loading import load_exit
from foredraft.integration.embedded.forward import prepare_model
from foredraft.integration.embedded.target import Target
from foredraft.integration.errors import UserError
from foredraft.integration.models import trained_for
from foredraft.integration.models.draft_file import (
    DRAFT_FILE,
    EXIT_FILE,
    TRAINING_FILE,
    DraftFile,
    write_draft_file,
)
from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers.early_exit import MOST_UNREAD, EarlyExitProposer

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
PROMPTS = random_prompts(5, seed=6, longest=30)
MODEL = exit_model()


@pytest.fixture(scope="module")
def target() -> Target:
    return toy_target(MODEL)


@pytest.fixture(scope="module")
def plain(target: Target) -> list[list[int]]:
    return run_tokens(build_engine(config_of(proposer="none"), target), PROMPTS, GREEDY)


def config_of(head: Path | str | None = None, exit_layer: int | None = None, **values: Any) -> Config:
    options = {"head": None if head is None else str(head), "exit_layer": exit_layer}
    given: dict[str, Any] = {
        "model": "toy",
        "dtype": "float32",
        "device": "cpu",
        "proposer": "early_exit",
        "early_exit": options | values.pop("early_exit", {}),
        "engine": {"max_num_seqs": 3, "max_model_len": 128},
    }
    return Config(**(given | values))


def write(folder: Path, file: DraftFile, name: str = EXIT_FILE) -> Path:
    write_draft_file(folder / name, file)
    return folder


def refusal(config: Config, target: Target) -> str:
    with pytest.raises(UserError) as caught:
        build_engine(config, target)
    message = str(caught.value)
    assert "\n" not in message
    return message


def decoder_of(engine: EmbeddedEngine) -> SlotDecoder:
    assert isinstance(engine.decoder, SlotDecoder)
    return engine.decoder


# ---- what works


@pytest.mark.parametrize("states", [False, True], ids=["plain", "reads states"])
@pytest.mark.parametrize("trimmed", [False, True], ids=["whole head", "trimmed head"])
def test_a_trained_head_drafts(
    target: Target, plain: list[list[int]], tmp_path: Path, states: bool, trimmed: bool
) -> None:
    """As many tokens as its file says unless the configuration does, at the layer it was made for."""
    head_ids = torch.arange(0, TOY_VOCAB, 2) if trimmed else None
    file = trained_exit(MODEL, 2, reads_states=states, head_ids=head_ids, num_draft_tokens=3)
    folder = write(tmp_path, file)
    for head, exit_layer in ((folder, None), (folder / EXIT_FILE, 2)):
        engine = build_engine(config_of(head, exit_layer), target)
        assert engine.num_draft_tokens == 3
        assert run_tokens(engine, PROMPTS, GREEDY) == plain
        assert engine.metrics.num_proposer_faults == 0
        assert 0 < engine.metrics.num_accepted_tokens < engine.metrics.num_drafted_tokens
        assert len(engine.metrics.verified_per_position) == 3
    assert build_engine(config_of(folder, num_draft_tokens=5), target).num_draft_tokens == 5


def test_the_own_head_drafts(target: Target, plain: list[list[int]]) -> None:
    accepted = []
    for exit_layer in (1, NUM_LAYERS):
        engine = build_engine(config_of("own", exit_layer), target)
        assert engine.num_draft_tokens == MODEL_DRAFT_TOKENS
        assert run_tokens(engine, PROMPTS, GREEDY) == plain
        assert engine.metrics.num_proposer_faults == 0
        accepted.append(engine.metrics.num_accepted_tokens / engine.metrics.num_drafted_tokens)
    assert accepted[0] < accepted[1] == 1
    assert build_engine(config_of("own", 1, num_draft_tokens=2), target).num_draft_tokens == 2


def test_the_options_arrive(target: Target) -> None:
    engine = build_engine(config_of("own", 1, early_exit={"min_confidence": 0.4}), target)
    assert isinstance(engine.proposer, EarlyExitProposer)
    assert engine.proposer._min_confidence == 0.4


def test_a_tied_target_gives_its_embedding_as_head(tmp_path: Path) -> None:
    """A head of the last layer that needs no rows of its own in the file."""
    model = toy_model(2)
    model.lm_head.weight.copy_(model.model.embed_tokens.weight)
    file = trained_exit(model, 1)
    tensors = {name: tensor for name, tensor in file.tensors.items() if name != "head.weight"}
    tied = toy_target(model)
    engine = build_engine(config_of(write(tmp_path, replace(file, tensors=tensors))), tied)
    run_tokens(engine, PROMPTS, GREEDY)
    assert engine.metrics.num_accepted_tokens == engine.metrics.num_drafted_tokens > 0


def test_the_head_that_comes_with_the_model(
    target: Target, plain: list[list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, trained_exit(MODEL, 3, num_draft_tokens=6))
    shipped = {("toy", EXIT_FILE): tmp_path / EXIT_FILE}
    monkeypatch.setattr(trained_for, "pretrained", lambda *wanted: shipped.get(wanted))
    engine = build_engine(config_of(), target)
    assert engine.num_draft_tokens == 6
    assert run_tokens(engine, PROMPTS, GREEDY) == plain


@pytest.mark.parametrize("head", ["own", "trained"])
def test_near_the_context_limit_drafts_get_shorter(target: Target, tmp_path: Path, head: str) -> None:
    """Up to the very last position and never beyond (F71, F73, F75)."""
    path = "own" if head == "own" else write(tmp_path, trained_exit(MODEL, 2, reads_states=True))
    sizes = {"max_num_seqs": 2, "max_model_len": 40}
    params = SamplingParams(temperature=0, max_tokens=100, ignore_eos=True)
    expected = run_tokens(build_engine(config_of(proposer="none", engine=sizes), target), PROMPTS, params)
    assert [len(one) for one in expected] == [40 - len(prompt) for prompt in PROMPTS]
    for width in (1, 8):
        engine = build_engine(config_of(path, 2, engine=sizes, num_draft_tokens=width), target)
        assert run_tokens(engine, PROMPTS, params) == expected
        assert engine.metrics.num_proposer_faults == 0
        assert engine.metrics.num_accepted_tokens > 0


@pytest.mark.parametrize("head", ["own", "trained"])
def test_two_engines_on_one_target_step_in_turns(
    target: Target, plain: list[list[int]], tmp_path: Path, head: str
) -> None:
    """F177: with different exit layers; and one that does not draft works on afterwards."""
    engines = []
    for exit_layer in (1, 3):
        (tmp_path / str(exit_layer)).mkdir()
        path = write(
            tmp_path / str(exit_layer), trained_exit(MODEL, exit_layer, reads_states=exit_layer == 1)
        )
        engines.append(build_engine(config_of("own" if head == "own" else path, exit_layer), target))
    outputs: list[dict[str, list[int]]] = [{}, {}]
    for number, prompt in enumerate(PROMPTS):
        for engine in engines:
            engine.add_request(str(number), prompt, GREEDY)
    while any(engine.has_unfinished_requests() for engine in engines):
        for engine, seen in zip(engines, outputs, strict=True):
            seen |= {one.request_id: one.outputs[0].token_ids for one in engine.step() if one.finished}
    assert [[seen[str(number)] for number in range(len(PROMPTS))] for seen in outputs] == [plain] * 2
    first, second = (engine.metrics for engine in engines)
    assert (first.num_proposer_faults, second.num_proposer_faults) == (0, 0)
    assert first.num_drafted_tokens > second.num_drafted_tokens, "one of them errs more often"
    assert run_tokens(build_engine(config_of(proposer="none"), target), PROMPTS, GREEDY) == plain
    assert target.prepared.num_layers == NUM_LAYERS


# ---- memory


def cache_bytes(engine: EmbeddedEngine) -> int:
    cache = decoder_of(engine).cache
    return sum(one.untyped_storage().nbytes() for one in (cache.keys, cache.values))


def test_the_own_head_keeps_nothing(target: Target) -> None:
    """0 bytes of keys, values, states and weights over plain decoding."""
    none = build_engine(config_of(proposer="none"), target)
    before = live_bytes()
    engine = build_engine(config_of("own", 2), target)
    assert cache_bytes(engine) == cache_bytes(none)
    assert decoder_of(engine).hidden_states is None
    assert live_bytes() - before == cache_bytes(engine)


@pytest.mark.parametrize("states", [False, True], ids=["plain", "reads states"])
@pytest.mark.parametrize("num_blocks", [1, 2])
def test_a_trained_head_keeps_its_own_keys_and_values(
    target: Target, tmp_path: Path, num_blocks: int, states: bool
) -> None:
    """And the newest states of each row, at the exit and last; the target's weights and cache are there once
    (F91, F123)."""
    file = trained_exit(MODEL, 1, num_blocks=num_blocks, reads_states=states)
    config = config_of(write(tmp_path, file))
    none = build_engine(config_of(proposer="none"), target)
    before = live_bytes()
    engine = build_engine(config, target)
    decoder = decoder_of(engine)
    own = num_blocks * 2 * 2 * 16 * 4  # blocks, keys and values, key heads, head size, bytes of a number
    assert cache_bytes(engine) == cache_bytes(none) + 3 * 128 * own
    kept = 0 if decoder._states is None else decoder._states.states.untyped_storage().nbytes()
    assert kept == (3 * MOST_UNREAD * 64 * 4 if states else 0)
    assert decoder.exit_backlog is not None
    waiting = decoder.exit_backlog._at_exit.states.untyped_storage().nbytes()
    assert waiting == 3 * MOST_UNREAD * 64 * 4
    weights = sum(tensor.numel() * 4 for tensor in file.tensors.values())
    extra = live_bytes() - before - cache_bytes(engine) - kept - waiting
    # Of the head alone. Weights are packed, and its one-token embedding and the rotary table are small.
    assert weights <= extra < 1.1 * weights + 2000
    assert extra < 0.5 * sum(one.numel() * 4 for one in MODEL.parameters()) * num_blocks
    assert _bytes_per_position(target, None, load_exit(config.early_exit, target)) == cache_bytes(engine) // (
        3 * 128
    )


def live_bytes() -> int:
    """Bytes of all tensors in this process, shared memory once; packed weights by their numbers."""
    gc.collect()
    storages: dict[int, int] = {}
    for one in gc.get_objects():
        if type(one) in (torch.Tensor, torch.nn.Parameter):
            if one.is_mkldnn:
                storages[id(one)] = one.numel() * one.element_size()
            else:
                storages[one.untyped_storage().data_ptr()] = one.untyped_storage().nbytes()
    return sum(storages.values())


def test_the_heads_memory_is_planned(target: Target, tmp_path: Path) -> None:
    """Rows that fit, and the refusal where not even one does."""
    path = write(tmp_path, trained_exit(MODEL, 1, num_blocks=2))
    needed = (NUM_LAYERS + 2) * 2 * 2 * 16 * 4
    sizes = {"max_num_seqs": 3, "max_model_len": 128, "kv_cache_memory_gb": needed * 128 * 2 / 1e9}
    assert decoder_of(build_engine(config_of(path, engine=sizes), target)).num_rows == 2
    too_small = sizes | {"kv_cache_memory_gb": (needed * 128 - 1) / 1e9}
    assert "set engine.max_model_len to at most 127" in refusal(config_of(path, engine=too_small), target)
    assert decoder_of(build_engine(config_of("own", 1, engine=too_small), target)).num_rows == 1


# ---- what is refused


@pytest.mark.parametrize("family", ["Phi", "GPTNeoX"])
def test_a_family_outside_the_table_is_refused_by_name(family: str, tmp_path: Path) -> None:
    """F181: and runs without an exit, drafting or not."""
    model = family_model(family, num_key_value_heads=4)
    target = toy_target(model, prepared=prepare_model(copy.deepcopy(model)), max_len=256)
    path = write(tmp_path, trained_exit(MODEL, 1, target_fingerprint=target.fingerprint))
    for config in (config_of("own", 2), config_of(path)):
        message = refusal(config, target)
        assert message.startswith("proposer: early_exit ")
        assert model.config.model_type in message
        for known in ("llama", "mistral", "qwen2", "qwen3", "gemma", "gpt2"):
            assert known in message
    outputs = [
        run_tokens(build_engine(config_of(proposer=name), target), PROMPTS, GREEDY)
        for name in ("none", "ngram")
    ]
    assert outputs[0] == outputs[1]


def test_no_head_is_named_and_none_comes_with_the_model(target: Target) -> None:
    message = refusal(config_of(), target)
    assert message.startswith("early_exit.head: none is given")
    assert "foredraft train exit" in message


def test_a_head_that_is_not_there(target: Target, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent", tmp_path / "absent.safetensors"):
        message = refusal(config_of(path), target)
        assert message.startswith("early_exit.head: ")
        assert str(path) in message


def test_a_head_of_another_target_is_refused(target: Target, tmp_path: Path) -> None:
    file = trained_exit(MODEL, 1, target="some-other", target_fingerprint="f" * 32)
    message = refusal(config_of(write(tmp_path, file)), target)
    assert message.startswith("early_exit.head: ")
    assert "was trained for 'some-other' (weights ffffffff)" in message
    assert target.fingerprint[:8] in message


def test_a_head_of_another_layer_is_refused(target: Target, tmp_path: Path) -> None:
    message = refusal(config_of(write(tmp_path, trained_exit(MODEL, 1)), 2), target)
    assert message.startswith("early_exit.exit_layer: ")
    assert "was made for layer 1, got 2" in message


@pytest.mark.parametrize("exit_layer", [NUM_LAYERS, NUM_LAYERS + 1])
def test_a_head_behind_the_last_layer_is_refused(target: Target, tmp_path: Path, exit_layer: int) -> None:
    file = replace(trained_exit(MODEL, 1), exit_layer=exit_layer)
    message = refusal(config_of(write(tmp_path, file)), target)
    assert message.startswith("early_exit.head: ")
    assert f"leaves after layer {exit_layer}, the model has {NUM_LAYERS}" in message


def test_an_own_exit_behind_the_last_layer_is_refused(target: Target) -> None:
    message = refusal(config_of("own", NUM_LAYERS + 1), target)
    assert message.startswith("early_exit.exit_layer: ")
    assert message.endswith(f"after 1 to {NUM_LAYERS} layers, got {NUM_LAYERS + 1}")


def test_each_kind_of_file_in_the_place_of_the_other(target: Target, tmp_path: Path) -> None:
    draft = write(tmp_path, trained_draft(MODEL), DRAFT_FILE) / DRAFT_FILE
    message = refusal(config_of(draft), target)
    assert message.startswith("early_exit.head: ")
    assert "'draft', not 'exit'" in message
    head = write(tmp_path, trained_exit(MODEL, 1)) / EXIT_FILE
    message = refusal(config_of(proposer="draft", draft={"model": str(head)}), target)
    assert message.startswith("draft.model: ")
    assert "'exit', not 'draft'" in message


def test_a_trained_folder_of_each_kind_in_the_place_of_the_other(target: Target, tmp_path: Path) -> None:
    """Folders as ``foredraft train`` leaves them, with the settings of the training in them."""
    for name in ("exit", "draft"):
        (tmp_path / name).mkdir()
        (tmp_path / name / TRAINING_FILE).write_text("{}")
    head = write(tmp_path / "exit", trained_exit(MODEL, 1))
    draft = write(tmp_path / "draft", trained_draft(MODEL), DRAFT_FILE)
    message = refusal(config_of(draft), target)
    assert message.startswith("early_exit.head: ")
    message = refusal(config_of(proposer="draft", draft={"model": str(head)}), target)
    assert message.startswith("draft.model: ")
    assert "is not finished" not in message


def test_a_training_that_is_not_finished(target: Target, tmp_path: Path) -> None:
    (tmp_path / TRAINING_FILE).write_text("{}")
    message = refusal(config_of(tmp_path), target)
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
    message = refusal(config_of(write(tmp_path, file)), target)
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
    message = refusal(config_of(write(tmp_path, file)), target)
    assert message.startswith("early_exit.head: ")
    assert said in message


@pytest.mark.parametrize("exit_layer", ["0", "-1", "x", "2.5", "true", "null", "[1]", "", None])
def test_a_damaged_exit_layer(target: Target, tmp_path: Path, exit_layer: str | None) -> None:
    path = write(tmp_path, trained_exit(MODEL, 1)) / EXIT_FILE
    change_metadata(path, lambda metadata: metadata | {"exit_layer": exit_layer})
    message = refusal(config_of(path), target)
    assert message.startswith("early_exit.head: ")


@pytest.mark.parametrize("change", [{"hidden_size": 32}, {"model_type": "gpt2"}, {"model_type": 5}])
def test_a_file_with_other_layers_is_refused(target: Target, tmp_path: Path, change: dict[str, Any]) -> None:
    path = write(tmp_path, trained_exit(MODEL, 1)) / EXIT_FILE

    def changed(metadata: dict[str, Any]) -> dict[str, Any]:
        return metadata | {"config": json.dumps(json.loads(metadata["config"]) | change)}

    change_metadata(path, changed)
    assert refusal(config_of(path), target).startswith("early_exit.head: ")


def change_metadata(path: Path, changed: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Rewrite the file's header texts; ``None`` leaves one out."""
    with safe_open(path, framework="pt") as file:
        metadata = changed(file.metadata())
    given = {name: text for name, text in metadata.items() if text is not None}
    save_file(load_file(path), path, given)


@pytest.mark.parametrize("name", ["~no_such_user/x", "a" * 300, "nowhere"])
def test_a_path_that_leads_nowhere(target: Target, tmp_path: Path, name: str) -> None:
    message = refusal(config_of(name), target)
    assert message.startswith("early_exit.head: ")
    assert name in message


def test_weights_that_the_targets_dtype_cannot_hold(target: Target, tmp_path: Path) -> None:
    file = trained_exit(MODEL, 1)
    huge = file.tensors["norm.weight"].double().fill_(1e300)
    path = write(tmp_path, replace(file, tensors=file.tensors | {"norm.weight": huge}))
    assert "norm.weight has values that float32 cannot hold" in refusal(config_of(path), target)


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
