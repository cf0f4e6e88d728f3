"""``foredraft train exit`` from the command line."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from foredraft.integration import cli
from foredraft.integration.models.draft_file import read_exit_file


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["foredraft", "train", "exit", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


@pytest.fixture
def arguments(tmp_path: Path, deep_folder: Path, write_lines: Callable[..., str]) -> list[str]:
    rows = [{"text": f"this is text number {number}, and it says {number % 7}"} for number in range(60)]
    values = {
        "--out": tmp_path / "out",
        "--data": write_lines(*rows, {"prompt": "hello"}),
        "--model": deep_folder,
        "--dtype": "float32",
        "--train-tokens": 1000,
        "--batch-tokens": 512,
        "--head-tokens": 100,
        "--max-response-tokens": 8,
        "--seed": 3,
    }
    return [str(part) for pair in values.items() for part in pair]


def test_an_exit_head_comes_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str]
) -> None:
    assert run(monkeypatch, *arguments, "--exit-layer", "2", "--layers", "2", "--form", "plain") == 0
    printed = capsys.readouterr()
    assert "the exit head for" in printed.out
    assert "the target reads up to layer 2: " in printed.err
    file = read_exit_file(tmp_path / "out")
    assert file.exit_layer == 2
    assert not file.reads_states
    kept = json.loads((tmp_path / "out" / "settings.json").read_text())
    assert (kept["kind"], kept["seed"], kept["layers"]) == ("exit", 3, 2)


def test_a_sweep_prints_a_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert run(monkeypatch, *arguments, "--sweep", "1,2", "--sweep-tokens", "600") == 0
    printed = capsys.readouterr().out
    assert "in place of --sweep" in printed
    out = Path(arguments[arguments.index("--out") + 1])
    found = json.loads((out / "sweep.json").read_text())["layers"]
    assert [row["exit_layer"] for row in found] == [1, 2]
    assert json.loads((out / "sweep-2" / "settings.json").read_text())["train_tokens"] == 600


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["--exit-layer", "4"], "--exit-layer: the target has 4 layers"),
        (["--exit-layer", "0"], "--exit-layer"),
        (["--exit-layer", "3", "--layers", "2"], "--layers: only 1 of the target's layers"),
        (["--layers", "3"], "--layers"),
        (["--init", "first"], "--init"),
        (["--form", "plain", "--rollout", "2"], "--rollout"),
        (["--sweep", "1,x"], "--sweep: needs exit layers"),
        (["--sweep", "1,9"], "--sweep: --exit-layer: the target has 4 layers"),
        (["--sweep", "1", "--exit-layer", "1"], "--exit-layer: goes without --sweep"),
        (["--sweep", "1", "--sweep-tokens", "0"], "--sweep-tokens"),
        (["--sweep-tokens", "5"], "--sweep-tokens: goes with --sweep only (got 5)"),
        (["--out", "~no_such_user/x"], "--out: ~no_such_user/x: "),
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
