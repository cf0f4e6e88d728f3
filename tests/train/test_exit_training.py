"""The training of exit heads on toys: it starts right, learns, resumes, and what comes out drafts."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from toys import toy_model
from transformers import AutoModelForCausalLM

from foredraft.integration.align.measure import AlignPrompt, measure_acceptance
from foredraft.integration.config import Config, replaced
from foredraft.integration.embedded.build import build_engine, load_target
from foredraft.integration.errors import UserError
from foredraft.integration.models.draft_file import read_exit_file
from foredraft.integration.sampling_params import SamplingParams
from foredraft.integration.train import loop
from foredraft.integration.train.batches import shifted
from foredraft.integration.train.card import card_text
from foredraft.integration.train.end_to_end import drafting_with
from foredraft.integration.train.loop import Trainer
from foredraft.integration.train.run import make_student, train
from foredraft.integration.train.settings import DraftSettings, ExitSettings
from foredraft.integration.train.student import Student
from foredraft.integration.train.target_parts import read_target_parts


def settings(**given: Any) -> ExitSettings:
    base = {"write_tokens": 1, "batch_tokens": 512, "head_tokens": 200, "train_tokens": 12_000}
    return ExitSettings(**(base | {"exit_layer": 2} | given))


def untrained(given: ExitSettings, config: Config, exit_states: list[torch.Tensor]) -> Student:
    parts = read_target_parts(config, given)
    return make_student(parts, torch.arange(parts.vocab_size), given, exit_states)


@pytest.fixture
def hidden_states(deep_folder: Path) -> tuple[torch.Tensor, ...]:
    """Of a text of 30 random tokens, after each layer; the last ones normed."""
    model = AutoModelForCausalLM.from_pretrained(deep_folder, dtype=torch.float32)
    with torch.no_grad():
        output = model(torch.randint(0, 257, (1, 30)), output_hidden_states=True)
    return output.hidden_states  # type: ignore[no-any-return]


@pytest.mark.parametrize(("exit_layer", "layers"), [(2, 2), (3, 1)])
def test_the_rest_of_the_target_is_where_the_plain_form_starts(
    deep_config: Config, hidden_states: tuple[torch.Tensor, ...], exit_layer: int, layers: int
) -> None:
    given = settings(form="plain", exit_layer=exit_layer, layers=layers)
    student = untrained(given, deep_config, [hidden_states[exit_layer][0]])
    with torch.no_grad():
        found = student(hidden_states[exit_layer])
    torch.testing.assert_close(found, hidden_states[-1], rtol=1e-4, atol=1e-4)


def test_the_rest_of_the_target_is_always_accepted(
    run_folder: Callable[..., Path], deep_config: Config
) -> None:
    """Any slip of a position between texts, states and features would show."""
    given = settings(form="plain", layers=2, head_tokens=257, train_tokens=1, learning_rate=1e-9)
    first = train(run_folder(), given, deep_config).log[0]
    # Two roundings to bfloat16 on the way: near ties fall the other way now and then.
    assert first.held_out_greedy > 0.95
    assert first.held_out_sampled == pytest.approx(1.0, abs=0.05)


def test_the_form_states_starts_from_both_at_the_size_of_the_one(
    deep_config: Config, hidden_states: tuple[torch.Tensor, ...]
) -> None:
    student = untrained(settings(), deep_config, [hidden_states[2][0]])
    at_exit, states = hidden_states[2], shifted(hidden_states[-1])
    size = at_exit.pow(2).mean(-1).sqrt().mean()
    inside: list[torch.Tensor] = []
    student.input_proj.register_forward_hook(lambda *call: inside.append(call[2]))
    with torch.no_grad():
        student(at_exit, states)
    shape = at_exit.shape[-1:]
    expected = size * F.rms_norm(at_exit, shape, eps=1e-6) + F.rms_norm(states, shape, eps=1e-6)
    torch.testing.assert_close(inside[0], expected, rtol=1e-4, atol=1e-4)


def test_a_draft_starts_from_the_last_state_alone(toy_config: Config) -> None:
    given = DraftSettings(head_tokens=200)
    student = make_student(read_target_parts(toy_config, given), torch.arange(200), given)
    assert torch.equal(student.input_proj.weight, torch.cat([torch.zeros(64, 64), torch.eye(64)], dim=1))


def test_a_rollout_keeps_the_states_at_the_exit(
    run_folder: Callable[..., Path], deep_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
    forward = Student.forward

    def recorded(self: Student, given: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        output = forward(self, given, states)
        if torch.is_grad_enabled():
            calls.append((given, states, output))
        return output

    monkeypatch.setattr(Student, "forward", recorded)
    folder = run_folder()
    train(folder, settings(rollout=2, train_tokens=1), deep_config)
    (first_given, _, first), (second_given, second_states, _) = calls
    kept = load_file(folder / "exit_states-2" / "00000.safetensors")["states"]
    assert set(first_given[:, :8, 0].flatten().tolist()) <= set(kept[:, 0].tolist())
    assert torch.equal(second_given, first_given)
    assert torch.equal(second_states, shifted(first))
    assert not second_states.requires_grad


@pytest.fixture
def learnable_config(tmp_path: Path) -> Config:
    """A model of three layers whose law is sharp and hangs on the last token alone."""
    model = toy_model(num_layers=3, vocab_size=257)
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight.zero_()
    model.lm_head.weight.mul_(4.0)
    model.generation_config.eos_token_id = list(range(16))
    model.save_pretrained(tmp_path / "learnable")
    return Config(model=str(tmp_path / "learnable"), dtype="float32", device="cpu")


@pytest.mark.parametrize(
    "form",
    [{"form": "states"}, {"form": "plain"}, {"layers": 2}, {"rollout": 2, "state_loss": 0.1}],
    ids=["states", "plain", "two layers", "rollout"],
)
def test_the_loss_falls_and_acceptance_rises(
    run_folder: Callable[..., Path], learnable_config: Config, form: dict[str, Any]
) -> None:
    folder = run_folder(vocab_size=32)
    given = settings(
        exit_layer=1, init="fresh", learning_rate=5e-3, head_tokens=257, train_tokens=24_000, **form
    )
    log = train(folder, given, learnable_config).log
    assert log[1].loss is not None
    assert log[-1].loss is not None
    assert log[-1].loss < log[1].loss
    assert log[-1].held_out_greedy > log[0].held_out_greedy + 0.05
    assert log[-1].held_out_sampled > log[0].held_out_sampled + 0.05


class KilledError(Exception):
    """Stands for a kill: nothing is saved on the way out."""


def test_a_killed_training_resumes_bit_by_bit(
    run_folder: Callable[..., Path], deep_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = settings(train_tokens=5_000, rollout=2)
    whole, killed = run_folder("whole"), run_folder("killed")
    train(whole, given, deep_config)

    monkeypatch.setattr(loop, "CHECKPOINT_EVERY_S", 0.0)
    advance = Trainer._advance
    steps: list[int] = []

    def counted(self: Trainer, progress: Any) -> None:
        steps.append(1)
        if len(steps) == 5:
            raise KilledError
        advance(self, progress)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_advance", counted)
        with pytest.raises(KilledError):
            train(killed, given, deep_config)
    train(killed, given, deep_config)
    expected, found = (read_exit_file(folder).tensors for folder in (whole, killed))
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_data_and_features_of_a_draft_are_taken_as_they_are(
    run_folder: Callable[..., Path], tmp_path: Path, deep_config: Config
) -> None:
    draft, folder = run_folder("draft"), tmp_path / "exit"
    train(draft, DraftSettings(write_tokens=1, head_tokens=200, train_tokens=1), deep_config)
    folder.mkdir()
    shutil.copy2(draft / "written.jsonl", folder)
    shutil.copytree(draft / "features", folder / "features")
    copied = {path: path.stat().st_mtime_ns for path in [folder / "written.jsonl", *folder.rglob("0*")]}
    assert len(copied) >= 2
    train(folder, settings(train_tokens=1), deep_config)
    assert {path: path.stat().st_mtime_ns for path in copied} == copied
    assert list((folder / "exit_states-2").iterdir())
    with pytest.raises(UserError, match="belongs to `foredraft train draft`"):
        train(draft, settings(train_tokens=1), deep_config)


def greedy_right(folder: Path, given: ExitSettings, config: Config, token_ids: list[int]) -> list[bool]:
    """At each position, whether the exported head's likeliest token is the one that follows."""
    file = read_exit_file(folder)
    student = untrained(given, config, [torch.ones(1, 64)])
    tensors = {name: tensor.float() for name, tensor in file.tensors.items()}
    head = tensors.pop("head.weight")
    student.load_state_dict(tensors)
    model = AutoModelForCausalLM.from_pretrained(config.model, dtype=torch.float32)
    with torch.no_grad():
        states = model(torch.tensor([token_ids]), output_hidden_states=True).hidden_states
        hidden = student(states[given.exit_layer], shifted(states[-1]))[0]
    drafted = file.head_ids[(hidden @ head.T).argmax(-1)].tolist()
    return [token == right for token, right in zip(drafted, token_ids[1:], strict=False)]


def accepted_when_drafting_one(right: list[bool], prompt_len: int, num_tokens: int) -> int:
    """Of a request: the prompt gives one token, each further step drafts one unless a single one is left."""
    done, accepted = 1, 0
    while done < num_tokens:
        hit = num_tokens - done > 1 and right[prompt_len + done - 1]
        accepted += hit
        done += 1 + hit
    return accepted


@pytest.mark.parametrize("form", ["states", "plain"])
def test_the_engine_accepts_what_the_student_gets_right(
    run_folder: Callable[..., Path], deep_config: Config, form: str
) -> None:
    """Same tokens as without drafting, and to the token the acceptance that reading along predicts."""
    folder, num_tokens = run_folder(), 40
    given = settings(form=form, exit_layer=3, train_tokens=3_000)
    train(folder, given, deep_config)
    config = replaced(drafting_with(deep_config, "exit", folder), num_draft_tokens=1)
    target = load_target(deep_config)
    prompts = [[5, 6, 7], [200, 3], [31, 64, 99, 12]]
    params = SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True)
    plain = build_engine(deep_config, target).generate(prompts, params)
    engine = build_engine(config, target)
    outputs = engine.generate(prompts, params)
    texts = [output.outputs[0].token_ids for output in plain]
    assert [output.outputs[0].token_ids for output in outputs] == texts

    expected = sum(
        accepted_when_drafting_one(
            greedy_right(folder, given, deep_config, prompt + text), len(prompt), num_tokens
        )
        for prompt, text in zip(prompts, texts, strict=True)
    )
    asked = [AlignPrompt("all", prompt) for prompt in prompts]
    counts = measure_acceptance(engine, asked, 0.0, sampling=params).overall
    assert 5 < expected < counts.num_drafted_tokens - 5, "a case that tells right from wrong"
    assert counts.num_accepted_tokens == expected


def test_the_file_and_the_card_say_what_it_is(run_folder: Callable[..., Path], deep_config: Config) -> None:
    folder, given = run_folder(), settings(exit_layer=None, train_tokens=600)
    outcome = train(folder, given, deep_config)
    file = read_exit_file(folder)
    assert file.exit_layer == 1, "chosen for a target of four layers"
    assert file.reads_states
    assert file.layers_config["num_hidden_layers"] == 1
    assert "head.weight" in file.tensors, "the toy's head is not its embedding"
    assert file.num_draft_tokens == outcome.end_to_end.num_draft_tokens
    assert outcome.end_to_end.greedy.num_drafted_tokens > 0 < outcome.end_to_end.sampled.num_drafted_tokens
    card = (folder / "README.md").read_text()
    assert card.startswith("# An exit head for ")
    assert "One decoder layer behind layer 1 of the target that also reads" in card
    assert "foredraft train exit --out DIR" in card
    assert "--exit-layer 1" in card
    assert "The exit head can propose" in card
    assert "one drafting step costs" in card
    assert str(folder) not in card
    assert "behind layer 3" in card_text(given.model_copy(update={"exit_layer": 3}), outcome)
    train(folder, given.model_copy(update={"exit_layer": 1}), deep_config)
    with pytest.raises(UserError, match=r"--exit-layer: .* was begun with 1, now it is 2"):
        train(folder, given.model_copy(update={"exit_layer": 2}), deep_config)
