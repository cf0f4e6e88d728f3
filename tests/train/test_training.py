"""The training on toy pairs: it learns, it resumes bit by bit, and it stops cleanly."""

import json
import math
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from foredraft.integration.config import Config
from foredraft.integration.errors import UserError
from foredraft.integration.models.draft_file import read_draft_file
from foredraft.integration.train import files, loop, run
from foredraft.integration.train.batches import shifted
from foredraft.integration.train.loop import Trainer
from foredraft.integration.train.run import train
from foredraft.integration.train.samples import read_samples
from foredraft.integration.train.settings import DraftSettings
from foredraft.integration.train.student import Student
from foredraft.integration.train.train_log import LogEntry


class KilledError(Exception):
    """Stands for a kill: nothing is saved on the way out."""


def settings(**given: Any) -> DraftSettings:
    base = {"write_tokens": 1, "batch_tokens": 512, "head_tokens": 200, "train_tokens": 12_000}
    return DraftSettings(**(base | {"init": "fresh"} | given))


def log(folder: Path) -> list[LogEntry]:
    lines = (folder / "train_log.jsonl").read_text().splitlines()
    return [LogEntry(**json.loads(line)) for line in lines]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    state = torch.load(folder / "checkpoint" / "last.pt", weights_only=True)
    return state["student"]  # type: ignore[no-any-return]


def test_the_whole_target_as_a_draft_is_always_accepted(
    run_folder: Callable[..., Path], toy_config: Config
) -> None:
    """Both layers of the target over the same tokens: any slip of a position would show."""
    folder = run_folder()
    given = settings(form="plain", layers=2, init="last", head_tokens=257, train_tokens=1, learning_rate=1e-9)
    outcome = train(folder, given, toy_config)
    assert outcome.log[0].held_out_greedy == 1.0
    # The features are rounded to bfloat16.
    assert outcome.log[0].held_out_sampled == pytest.approx(1.0, abs=0.02)
    assert outcome.coverage == 1.0


def test_a_trimmed_head_is_accepted_where_it_has_the_targets_token(
    run_folder: Callable[..., Path], toy_config: Config
) -> None:
    """The whole target again, now with 100 of its 257 tokens: p against p / mass accepts the mass."""
    folder = run_folder()
    given = settings(form="plain", layers=2, init="last", head_tokens=100, train_tokens=1, learning_rate=1e-9)
    outcome = train(folder, given, toy_config)
    head_ids = read_draft_file(folder).head_ids
    model = AutoModelForCausalLM.from_pretrained(toy_config.model, dtype=torch.float32)
    held_out = [sample for sample in read_samples(folder / "written.jsonl") if sample.held_out]
    with torch.no_grad():
        probs = [
            model(torch.tensor([one.token_ids])).logits[0, one.prompt_len - 1 : -1].softmax(-1)
            for one in held_out
        ]
    target_probs = torch.cat(probs)
    in_head = torch.isin(target_probs.argmax(-1), head_ids).float().mean().item()
    assert 0.1 < in_head < 0.9
    assert outcome.log[0].held_out_greedy == pytest.approx(in_head, abs=1e-6)
    mass = target_probs[:, head_ids].sum(-1).mean().item()
    assert outcome.log[0].held_out_sampled == pytest.approx(mass, abs=0.02)


def test_a_rollout_reads_the_drafts_own_states(
    run_folder: Callable[..., Path], toy_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[torch.Tensor, torch.Tensor]] = []
    forward = Student.forward

    def recorded(self: Student, embedded: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        output = forward(self, embedded, states)
        if torch.is_grad_enabled():
            calls.append((states, output))
        return output

    monkeypatch.setattr(Student, "forward", recorded)
    train(run_folder(), settings(rollout=3, train_tokens=1), toy_config)
    (_, first), (second_states, second), (third_states, _) = calls
    assert torch.equal(second_states, shifted(first))
    assert torch.equal(third_states, shifted(second))
    assert not second_states.requires_grad


@pytest.mark.parametrize(
    "form",
    [
        {"form": "states"},
        {"form": "plain"},
        {"form": "states", "rollout": 2, "state_loss": 0.1},
        {"form": "states", "loss": "tv"},
    ],
    ids=["states", "plain", "states with rollout", "total variation"],
)
def test_the_loss_falls_and_acceptance_rises(
    run_folder: Callable[..., Path], bigram_folder: Path, form: dict[str, Any]
) -> None:
    folder = run_folder(vocab_size=32)
    config = Config(model=str(bigram_folder), dtype="float32", device="cpu")
    outcome = train(
        folder, settings(learning_rate=5e-3, head_tokens=257, train_tokens=24_000, **form), config
    )
    first, last = outcome.log[1], outcome.log[-1]
    assert first.loss is not None
    assert last.loss is not None
    assert last.loss < first.loss
    assert last.held_out_greedy > outcome.log[0].held_out_greedy + 0.05
    assert last.held_out_sampled > outcome.log[0].held_out_sampled + 0.05
    assert len(outcome.log) == loop.EVALUATIONS + 1
    assert outcome.log == log(folder)


ADVANCE = Trainer._advance


def interrupt() -> None:
    """Ctrl-C."""
    os.kill(os.getpid(), signal.SIGINT)


def terminate() -> None:
    """What schedulers send before they kill."""
    os.kill(os.getpid(), signal.SIGTERM)


def kill() -> None:
    raise KilledError


def stop_after(monkeypatch: pytest.MonkeyPatch, steps: int, stop: Callable[[], None]) -> None:
    """Call ``stop`` in the next run after so many steps of it."""
    count = 0

    def counted(self: Trainer, progress: Any) -> None:
        nonlocal count
        ADVANCE(self, progress)
        count += 1
        if count == steps:
            stop()

    monkeypatch.setattr(Trainer, "_advance", counted)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_killed_training_resumes_bit_by_bit(
    run_folder: Callable[..., Path], toy_folder: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    """Killed 3 steps behind the last checkpoint, in the second epoch."""
    config = Config(model=str(toy_folder), dtype=dtype, device="cpu")
    given = settings(train_tokens=5_000, rollout=2)
    whole, killed = run_folder("whole"), run_folder("killed")
    train(whole, given, config)

    monkeypatch.setattr(loop, "CHECKPOINT_EVERY_S", 1e9)
    stop_after(monkeypatch, 4, interrupt)
    with pytest.raises(KeyboardInterrupt):
        train(killed, given, config)
    stop_after(monkeypatch, 3, kill)
    with pytest.raises(KilledError):
        train(killed, given, config)
    state = torch.load(killed / "checkpoint" / "last.pt", weights_only=True)
    assert state["place"]["step"] == 4
    stop_after(monkeypatch, 1000, kill)
    train(killed, given, config)

    expected, found = weights(whole), weights(killed)
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    kept = [(one.step, one.held_out_greedy, one.held_out_sampled) for one in log(killed)]
    assert kept == [(one.step, one.held_out_greedy, one.held_out_sampled) for one in log(whole)]


def test_an_interrupt_while_the_last_step_is_saved_ends_the_run(
    run_folder: Callable[..., Path], toy_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = loop.save_checkpoint

    def interrupted(*arguments: Any) -> None:
        interrupt()
        save(*arguments)

    monkeypatch.setattr(loop, "save_checkpoint", interrupted)
    folder, given = run_folder(), settings(train_tokens=600)
    with pytest.raises(KeyboardInterrupt):
        train(folder, given, toy_config)
    assert (folder / "checkpoint" / "last.pt").exists()
    assert not (folder / "README.md").exists()


@pytest.mark.parametrize("stop", [interrupt, terminate])
def test_an_interrupted_training_is_saved_and_needs_its_log(
    run_folder: Callable[..., Path],
    toy_config: Config,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    stop: Callable[[], None],
) -> None:
    folder, given = run_folder(), settings(train_tokens=5_000)
    stop_after(monkeypatch, 3, stop)
    with pytest.raises(KeyboardInterrupt):
        train(folder, given, toy_config)
    assert "saved; the same command goes on" in capsys.readouterr().err
    assert torch.load(folder / "checkpoint" / "last.pt", weights_only=True)["place"]["step"] == 3
    (folder / "train_log.jsonl").write_text("")
    with pytest.raises(UserError, match=r"train_log\.jsonl is damaged"):
        train(folder, given, toy_config)


def test_a_kill_outside_of_the_training_ends_the_run_like_ctrl_c(
    run_folder: Callable[..., Path], toy_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "prepare_data", lambda *_: terminate())
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        train(run_folder(), settings(), toy_config)
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_loss_that_is_no_number_keeps_the_last_good_checkpoint(
    run_folder: Callable[..., Path], toy_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, given = run_folder(), settings()
    stop_after(monkeypatch, 3, interrupt)
    with pytest.raises(KeyboardInterrupt):
        train(folder, given, toy_config)
    before = weights(folder)
    monkeypatch.setattr(loop, "fused_loss", lambda hidden, *_: hidden.sum() * math.nan)
    with pytest.raises(UserError, match=r"the loss became nan .* in step 4"):
        train(folder, given, toy_config)
    after = weights(folder)
    assert all(torch.equal(before[name], after[name]) for name in before)
    monkeypatch.undo()
    train(folder, given, toy_config)


def test_a_full_disk_keeps_the_last_good_checkpoint(
    run_folder: Callable[..., Path], toy_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, given = run_folder(), settings(train_tokens=5_000)
    stop_after(monkeypatch, 3, interrupt)
    with pytest.raises(KeyboardInterrupt):
        train(folder, given, toy_config)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", full)
        with pytest.raises(UserError, match=r"cannot be written: No space left on device"):
            train(folder, given, toy_config)
    assert torch.load(folder / "checkpoint" / "last.pt", weights_only=True)["place"]["step"] == 3
    assert not list(folder.rglob("*.tmp"))
    train(folder, given, toy_config)


def test_samples_of_another_model_are_refused_before_the_target_reads_them(
    run_folder: Callable[..., Path], toy_config: Config
) -> None:
    folder = run_folder(vocab_size=1000)
    with pytest.raises(UserError, match="is outside the model's vocabulary of 257"):
        train(folder, settings(), toy_config)
    assert not (folder / "features").exists()


def test_a_damaged_checkpoint_is_refused_by_name(run_folder: Callable[..., Path], toy_config: Config) -> None:
    folder, given = run_folder(), settings(train_tokens=600)
    train(folder, given, toy_config)
    path = folder / "checkpoint" / "last.pt"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(UserError, match=r"last\.pt is damaged"):
        train(folder, given, toy_config)


def test_more_tokens_train_the_same_draft_further(
    run_folder: Callable[..., Path], toy_config: Config
) -> None:
    folder = run_folder()
    first = train(folder, settings(train_tokens=2_000), toy_config)
    more = train(folder, settings(train_tokens=6_000), toy_config)
    assert more.log[: len(first.log)] == first.log
    assert more.log[-1].tokens >= 6_000
    assert len(list(folder.glob("measured-*.json"))) == 2, "each state of the draft is measured"


def test_the_draft_file_holds_the_trained_weights(
    run_folder: Callable[..., Path], toy_config: Config
) -> None:
    folder = run_folder()
    outcome = train(folder, settings(train_tokens=600), toy_config)
    draft = read_draft_file(folder)
    trained = weights(folder)
    assert draft.reads_states
    assert draft.target_fingerprint == outcome.target_fingerprint
    assert draft.layers_config["num_hidden_layers"] == 1
    assert len(draft.head_ids) == 200
    assert draft.tensors.keys() == {*trained, "head.weight"}, "the toy's head is not its embedding"
    assert all(torch.equal(draft.tensors[name], trained[name].to(torch.bfloat16)) for name in trained)
    card = (folder / "README.md").read_text()
    assert "--train-tokens 600" in card
    assert draft.num_draft_tokens == outcome.end_to_end.num_draft_tokens >= 1
    assert outcome.end_to_end.greedy.num_drafted_tokens > 0 < outcome.end_to_end.sampled.num_drafted_tokens
    assert set(outcome.end_to_end.speedups) == {1, 2, 3, 4}
    assert "one drafting step costs" in card
    assert str(folder) not in card
