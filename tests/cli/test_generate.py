"""``foredraft generate``: what it prints, and input it refuses before a model is loaded."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from foredraft.integration import cli


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["foredraft", "generate", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["", "--max-tokens", "4"], "prompt: is empty"),
        (["hello", "--file", "x.txt"], "--file"),
        (["--file", "no/such/file"], "--file: cannot read"),
        (["hello", "--raw", "--system", "be brief"], "--system"),
        (["bad \udcff bytes"], "UTF-8"),
        (["hello", "--max-tokens", "0"], "max_tokens"),
        (["hello", "--temperature", "nan"], "temperature"),
        (["hello", "--top-p", "0"], "top_p"),
        (["hello", "--model", "no/such/folder/model"], "model"),
        (["hello", "--max-tokens", "many"], "'--max-tokens'"),
        (["hello", "--engine", "other"], "error: Invalid value for '--engine': "),
        (["hello", "--engine", "other"], "(got 'other')"),
        (["hello", "more"], "error: Got unexpected extra argument"),
        (["hello", "--nope"], "error: No such option: --nope"),
    ],
)
def test_bad_input_is_one_line_and_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], named: str
) -> None:
    assert run(monkeypatch, *arguments) == 2
    error = capsys.readouterr().err
    assert named in error
    assert "Traceback" not in error


def test_binary_and_closed_stdin(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Both used to end in a traceback."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe\x00")))
    assert run(monkeypatch) == 2
    assert "not valid UTF-8" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", None)
    assert run(monkeypatch) == 2
    assert "pipe it in" in capsys.readouterr().err


@pytest.mark.model
def test_json_of_the_built_in_model(tmp_path: Path) -> None:
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("Repeat: one two three one two three one two three")
    command = [sys.executable, "-m", "foredraft.integration.cli", "generate", "--file", str(prompt), "--json"]
    done = subprocess.run(
        [*command, "--max-tokens", "12"], capture_output=True, text=True, check=True, timeout=300
    )
    document = json.loads(done.stdout)
    assert document["usage"]["completion_tokens"] == len(document["token_ids"]) <= 12
    assert document["usage"]["prompt_tokens"] == len(document["prompt_token_ids"])
    assert document["finish_reason"] in ("stop", "length")
    assert document["text"]
    assert document["speculation"]["proposer"] == "ngram"
