"""``foredraft align`` from the command line, on a toy target."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from foredraft.integration import cli
from foredraft.integration.align import align, session
from foredraft.integration.config import Config
from foredraft.integration.embedded import build
from foredraft.integration.embedded.build import Target

WriteDraft = Callable[[int], Path]


@pytest.fixture
def loads(toy_target: Target, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Config]]:
    """Makes every model the toy; lists the configurations that were loaded."""
    loaded: list[Config] = []

    def load(config: Config) -> Target:
        loaded.append(config)
        return toy_target

    monkeypatch.setattr(build, "load_target", load)
    return loaded


def run(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(align)
    return CliRunner().invoke(app, list(arguments))


def test_a_draft_equal_to_its_target_is_always_right(
    loads: list[Config], workload_file: Path, write_draft: WriteDraft, tmp_path: Path
) -> None:
    out = tmp_path / "out.json"
    result = run(
        *("--workload", str(workload_file), "--set", f"draft.model={write_draft(0)}", "--dtype", "float32"),
        *("--draft-tokens", "2", "--batch-size", "2", "--seconds", "20", "--max-tokens", "9"),
        *("--json", str(out)),
    )
    assert result.exit_code == 0, result.output
    assert [config.proposer for config in loads] == ["draft"]
    document = json.loads(out.read_text())
    assert (document["proposer"], document["num_draft_tokens"], document["max_tokens"]) == ("draft", 2, 9)
    assert [each["temperature"] for each in document["results"]] == [0.0, 1.0]
    for each in document["results"]:
        assert each["complete"] is True
        assert list(each["categories"]) == ["a", "b"]
        assert each["overall"]["num_prompts"] == 5
        assert each["overall"]["acceptance_rate"] == 1.0
        assert len(each["predictions"]) == 2
        assert each["costs"]["batch_size"] == 2
    assert "measuring" not in result.output
    assert result.stdout.count("predicted") >= 2


def test_another_draft_is_right_now_and_then(
    loads: list[Config], workload_file: Path, write_draft: WriteDraft, tmp_path: Path
) -> None:
    out = tmp_path / "out.json"
    result = run(
        *("--workload", str(workload_file), "--set", f"draft.model={write_draft(1)}", "--temperatures", "1"),
        *("--limit", "2", "--json", str(out), "--batch-size", "1"),
    )
    assert result.exit_code == 0, result.output
    (each,) = json.loads(out.read_text())["results"]
    assert 0 < each["overall"]["acceptance_rate"] < 0.9
    assert {name: counts["num_prompts"] for name, counts in each["categories"].items()} == {"a": 1, "b": 1}
    assert each["overall"]["num_emitted_tokens"] == 2 * 64, "the default output length of align"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--batch-size", "0"], "--batch-size"),
        (["--proposer", "none"], "proposer: none drafts nothing"),
        (["--workload", "no_such_workload"], "no_such_workload"),
        (["--temperatures", "cold"], "--temperatures"),
        (["--temperatures", "-1"], "temperature"),
        (["--json", "no/such/folder/out.json"], "--json"),
        (["--set", "sampling.n=2"], "sampling.n: align"),
        (["--limit", "0"], "--limit"),
        (["--seconds", "0"], "--seconds"),
        (["--draft-tokens", "33"], "--draft-tokens"),
    ],
)
def test_bad_values_end_with_code_2_before_a_model_is_loaded(
    loads: list[Config],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    named: str,
) -> None:
    monkeypatch.setattr("sys.argv", ["foredraft", "align", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert named in capsys.readouterr().err
    assert loads == []


def test_a_draft_that_does_not_exist_is_refused(
    loads: list[Config], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["foredraft", "align", "--set", "draft.model=gone.safetensors"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "gone.safetensors" in capsys.readouterr().err


def test_a_batch_that_does_not_fit_is_refused(
    loads: list[Config],
    workload_file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arguments = ["--workload", str(workload_file), "--proposer", "ngram", "--kv-cache-memory-gb", "0.0003"]
    monkeypatch.setattr("sys.argv", ["foredraft", "align", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "--batch-size: 8 requests" in capsys.readouterr().err


def test_out_of_time_is_said(
    loads: list[Config], workload_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = session.watch_acceptance

    def at_once(*arguments: Any, **options: Any) -> Any:
        return watch(*arguments, **(options | {"seconds": 0.0}))

    monkeypatch.setattr(session, "watch_acceptance", at_once)
    result = run(
        *("--workload", str(workload_file), "--proposer", "ngram", "--seconds", "1", "--temperatures", "0"),
        *("--batch-size", "2"),
    )
    assert result.exit_code == 0, result.output
    assert "Stopped early: 2 of 5 prompts begun" in result.stdout
    assert "No data: nothing was drafted." in result.stdout
    assert "nan" not in result.stdout


@pytest.mark.parametrize("during", ["watch_acceptance", "measure_costs"])
def test_ctrl_c_shows_and_writes_what_there_is(
    loads: list[Config],
    workload_file: Path,
    write_draft: Callable[[int], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    during: str,
) -> None:
    original = getattr(session, during)
    num_calls = 0

    def interrupted(*arguments: Any, **options: Any) -> Any:
        nonlocal num_calls
        num_calls += 1
        if num_calls == 2:
            raise KeyboardInterrupt
        return original(*arguments, **options)

    monkeypatch.setattr(session, during, interrupted)
    out = tmp_path / "out.json"
    result = run(
        *("--workload", str(workload_file), "--set", f"draft.model={write_draft(1)}"),
        *("--max-tokens", "8", "--json", str(out)),
    )
    assert result.exit_code == 130
    document = json.loads(out.read_text())
    assert document["interrupted"] is True
    first, second = document["results"]
    assert first["complete"] is True
    assert first["costs"] is not None
    assert second["complete"] is (during == "measure_costs")
    assert second["costs"] is None
    assert "temperature 0" in result.stdout
