"""``foredraft train draft`` from the command line."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from foredraft.integration import cli
from foredraft.integration.models.draft_file import read_draft_file


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["foredraft", "train", "draft", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


@pytest.fixture
def arguments(tmp_path: Path, toy_folder: Path, write_lines: Callable[..., str]) -> list[str]:
    rows = [{"text": f"this is text number {number}, and it says {number % 7}"} for number in range(60)]
    values = {
        "--out": tmp_path / "out",
        "--data": write_lines(*rows, {"prompt": "hello"}, {"turns": ["and"]}),
        "--model": toy_folder,
        "--dtype": "float32",
        "--train-tokens": 4000,
        "--batch-tokens": 512,
        "--head-tokens": 100,
        "--max-response-tokens": 8,
        "--seed": 3,
    }
    return [str(part) for pair in values.items() for part in pair]


def test_a_draft_comes_out_and_a_rerun_has_nothing_to_do(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    arguments: list[str],
) -> None:
    out = tmp_path / "out"
    assert run(monkeypatch, *arguments) == 0
    printed = capsys.readouterr()
    assert "acceptance of the first drafted token" in printed.out
    assert "before" in printed.out
    assert "training: " in printed.err
    assert "\x1b" not in printed.err, "no colours or bars where stderr is no terminal"
    assert 1 <= len(read_draft_file(out).head_ids) <= 100
    assert json.loads((out / "settings.json").read_text())["seed"] == 3
    assert (out / "README.md").is_file()

    first = read_draft_file(out).tensors
    log = (out / "train_log.jsonl").read_bytes()
    assert run(monkeypatch, *arguments) == 0
    again = read_draft_file(out).tensors
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert (out / "train_log.jsonl").read_bytes() == log
    assert capsys.readouterr().out == printed.out


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["--layers", "0"], "--layers"),
        (["--layers", "3"], "--layers: the target has 2"),
        (["--loss", "l2"], "--loss"),
        (["--init", "middle"], "--init"),
        (["--learning-rate", "-1"], "--learning-rate"),
        (["--data", "nowhere.jsonl"], "--data: nowhere.jsonl cannot be read"),
        (["--model", "no/such/model"], "model"),
        (["--form", "plain", "--rollout", "2"], "--rollout"),
    ],
)
def test_bad_input_is_one_line_and_code_2(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    more: list[str],
    named: str,
) -> None:
    assert run(monkeypatch, *arguments, *more) == 2
    error = capsys.readouterr().err
    assert named in error
    assert "Traceback" not in error
    out = Path(arguments[arguments.index("--out") + 1])
    assert not (out / "settings.json").exists(), "a slip must not claim the folder"


def test_changed_settings_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str]
) -> None:
    assert run(monkeypatch, *arguments) == 0
    capsys.readouterr()
    assert run(monkeypatch, *arguments, "--train-tokens", "3000") == 2
    expected = f"--train-tokens: {tmp_path / 'out'} was begun with 4000, now it is 3000"
    assert expected in capsys.readouterr().err


def test_an_out_that_is_a_file_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str]
) -> None:
    (tmp_path / "out").write_text("")
    assert run(monkeypatch, *arguments) == 2
    error = capsys.readouterr().err
    assert "--out" in error
    assert "make room" not in error
