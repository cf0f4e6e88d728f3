"""``foredraft compare`` from the command line, on a toy target."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from foredraft.integration import cli
from foredraft.integration.compare import compare
from foredraft.integration.compare.offline import measure as measure_module
from foredraft.integration.compare.offline.closed_loop import BlockRun, run_block
from foredraft.integration.compare.offline.prompts import CompareRequest
from foredraft.integration.config import Config
from foredraft.integration.embedded import build
from foredraft.integration.embedded.build import Target
from foredraft.integration.embedded.engine import EmbeddedEngine


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
    app.command()(compare)
    return CliRunner().invoke(app, list(arguments))


def test_a_run_prints_and_writes_its_result(loads: list[Config], workload_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    result = run(
        *("--workload", str(workload_file), "--batch-sizes", "1,3", "--temperatures", "0,0.5"),
        *("--max-tokens", "10", "--seed", "5", "--dtype", "float32", "--json", str(out)),
    )
    assert result.exit_code == 0, result.output
    assert len(loads) == 1, "the target is loaded once"
    document = json.loads(out.read_text())
    assert (document["seed"], document["interrupted"]) == (5, False)
    keys = [(row["batch_size"], row["temperature"], row["proposer"]) for row in document["results"]]
    assert keys == [(b, t, p) for b in (1, 3) for t in (0.0, 0.5) for p in ("none", "ngram")]
    assert all(row["outputs_equal"] is True for row in document["results"])
    assert all(row["emitted_tokens"] == 30 for row in document["results"])
    assert result.stdout.count("ngram") >= 4
    assert "comparing" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--batch-sizes", "0"], "--batch-sizes"),
        (["--batch-sizes", "9999"], "--batch-sizes"),
        (["--proposers", "ngrm"], "did you mean ngram"),
        (["--workload", "no_such_workload"], "no_such_workload"),
        (["--temperatures", "cold"], "--temperatures"),
        (["--temperature", "-1"], "temperature"),
        (["--json", "no/such/folder/out.json"], "--json"),
        (["--set", "sampling.n=2"], "sampling.n"),
        (["--limit", "0"], "--limit"),
        (["--repeats", "0"], "--repeats"),
    ],
)
def test_bad_values_end_with_code_2_before_a_model_is_loaded(
    loads: list[Config],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    named: str,
) -> None:
    monkeypatch.setattr("sys.argv", ["foredraft", "compare", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert named in capsys.readouterr().err
    assert loads == []


@pytest.mark.parametrize(("interrupt_at", "num_blocks"), [(5, 1), (4, 0)])
def test_ctrl_c_shows_and_writes_what_is_complete(
    loads: list[Config],
    workload_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    interrupt_at: int,
    num_blocks: int,
) -> None:
    num_runs = 0

    def interrupted(engine: EmbeddedEngine, requests: Sequence[CompareRequest], batch_size: int) -> BlockRun:
        nonlocal num_runs
        num_runs += 1
        if num_runs == interrupt_at:
            raise KeyboardInterrupt
        return run_block(engine, requests, batch_size)

    monkeypatch.setattr(measure_module, "run_block", interrupted)
    out = tmp_path / "out.json"
    result = run(
        "--workload", str(workload_file), "--batch-sizes", "1", "--max-tokens", "4", "--json", str(out)
    )
    assert result.exit_code == 130
    assert out.exists() == bool(num_blocks), "nothing complete, nothing written"
    if num_blocks:
        document = json.loads(out.read_text())
        assert document["interrupted"] is True
        assert [row["num_blocks"] for row in document["results"]] == [num_blocks] * 2
        assert "ngram" in result.stdout
