"""The command line up to ``config show``, run as users run it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from foredraft.integration import cli
from foredraft.integration.cli_config import show
from foredraft.integration.cli_options import with_config
from foredraft.integration.config import Config
from foredraft.integration.config_sources import LoadedConfig
from foredraft.integration.errors import UserError

RUN_MAIN = "from foredraft.integration.cli import main; main()"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", RUN_MAIN, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_piped_show_prints_value_and_origin(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text("ngram: {min_n: 3}\n")
    done = run("config", "show", "--config", str(path), "--top-p", "0.9", "--set", "sampling.ignore_eos=True")
    lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert "ngram.min_n\t3\tfile my.yaml" in lines
    assert "sampling.top_p\t0.9\tflag --top-p" in lines
    assert "sampling.ignore_eos\ttrue\tflag --set" in lines
    assert "num_draft_tokens\tnull\tdefault" in lines


def test_json_show_is_itself_a_config(tmp_path: Path) -> None:
    done = run("config", "show", "--json", "--proposer", "draft", "--set", "sampling.logit_bias={5: 1.5}")
    shown = json.loads(done.stdout)
    assert shown["origins"]["proposer"] == "flag --proposer"
    assert Config(**shown["config"]) == Config(proposer="draft", sampling={"logit_bias": {5: 1.5}})


def test_table_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    command(show, ["--set", "sampling.stop=['[bold]']"])
    out = capsys.readouterr().out
    assert "option" in out
    assert "[bold]" in out  # a value is no markup


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--num-draft-tokens", "33"],
            "flag --num-draft-tokens: num_draft_tokens: should be auto or a whole number",
        ),
        (["--config", "absent.yaml"], "config file absent.yaml: No such file or directory"),
        (["--set", "ngram.minn=3"], "flag --set: ngram.minn: unknown field; did you mean ngram.min_n?"),
        (["--set", "ngram.min_n"], "--set: needs KEY=VALUE"),
        (["--set", "=3"], "--set: needs KEY=VALUE"),
        (["--set", "ngram.min_n=["], "--set ngram.min_n, line 1:"),
        (["--set", "ngram.min_n=1", "--set", "ngram.min_n=2"], "ngram.min_n is given twice"),
        (["--seed", "1", "--set", "sampling.seed=1"], "sampling.seed is given twice"),
        (["--temperature", "nan"], "sampling.temperature: Input should be a finite number"),
        (["--num-draft-tokens", "0", "--top-p", "2"], "(got 0); flag --top-p: sampling.top_p"),
    ],
)
def test_user_error_is_one_line_and_exit_code_2(arguments: list[str], said: str) -> None:
    done = run("config", "show", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr


@pytest.mark.parametrize(
    "arguments", [["--verification-rule", "x"], ["--num-draft-tokens", "x"], ["--unknown"]]
)
def test_usage_error_is_exit_code_2(arguments: list[str]) -> None:
    done = run("config", "show", *arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["config", "show", "--help"], ["config", "show"]]
)
def test_quick_commands_load_no_heavy_library(arguments: list[str]) -> None:
    code = (
        "import sys, atexit\n"
        "heavy = {'torch', 'transformers', 'numpy', 'huggingface_hub'}\n"
        "atexit.register(lambda: print('loaded:', sorted(heavy & set(sys.modules)), file=sys.stderr))\n"
    )
    command = [sys.executable, "-c", code + RUN_MAIN, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0
    assert done.stderr == "loaded: []\n"


def test_every_flag_has_a_help_text() -> None:
    done = run("config", "show", "--help")
    for flag in (
        "--config",
        "--model",
        "--num-draft-tokens",
        "--seed",
        "--kv-cache-memory-gb",
        "--forward",
        "--set",
    ):
        assert flag in done.stdout


def test_version() -> None:
    assert run("--version").stdout.startswith("foredraft ")


def test_interrupt_is_exit_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    assert exit_code(monkeypatch, KeyboardInterrupt()) == 130


def test_user_error_of_a_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(monkeypatch, UserError("field: bad\nother: worse")) == 2
    assert capsys.readouterr().err == "error: field: bad; other: worse\n"


def test_a_command_may_end_with_a_code_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert exit_code(monkeypatch, typer.Exit(3)) == 3
    assert exit_code(monkeypatch, typer.Exit()) in (0, None)


def test_fault_of_the_program_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZeroDivisionError):
        exit_code(monkeypatch, ZeroDivisionError())


def test_command_gets_the_config_and_its_own_parameters() -> None:
    seen = []

    @with_config
    def mine(loaded: LoadedConfig, count: int = 1) -> None:
        """Do it."""
        seen.append((loaded.config.num_draft_tokens, loaded.origins["num_draft_tokens"], count))

    command(mine, ["--count", "3", "--num-draft-tokens", "2"])
    assert seen == [(2, "flag --num-draft-tokens", 3)]


def command(function: object, arguments: list[str]) -> None:
    app = typer.Typer()
    app.command()(function)  # type: ignore[type-var]
    app(arguments, standalone_mode=False)


def exit_code(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> object:
    """What ``main`` ends with when a command raises ``error``."""
    app = typer.Typer()

    @app.command()
    def fail() -> None:
        raise error

    monkeypatch.setattr(cli, "app", app)
    monkeypatch.setattr(sys, "argv", ["foredraft"])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return caught.value.code
