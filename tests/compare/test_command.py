"""``foredraft compare`` from the command line, on a toy target."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer
from typer.testing import CliRunner, Result

from foredraft.integration import cli
from foredraft.integration.compare import compare
from foredraft.integration.compare.offline import measure as measure_module
from foredraft.integration.compare.offline.block_run import BlockRun
from foredraft.integration.compare.offline.prompts import CompareRequest
from foredraft.integration.compare.offline.serving import run_block
from foredraft.integration.compare.results.schema import kept_schema
from foredraft.integration.config import Config
from foredraft.integration.embedded import build
from foredraft.integration.embedded.build import Target
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.errors import UserError


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
    out, page = tmp_path / "out.json", tmp_path / "out.html"
    result = run(
        *("--workload", str(workload_file), "--batch-sizes", "1,3", "--temperatures", "0,0.5"),
        *("--max-tokens", "10", "--seed", "5", "--dtype", "float32", "--json", str(out)),
        *("--html", str(page), "--proposers", "ngram", "--repeats", "1"),
    )
    assert result.exit_code == 0, result.output
    assert len(loads) == 1, "the target is loaded once"
    document = json.loads(out.read_text())
    assert (document["seed"], document["interrupted"]) == (5, False)
    keys = [(row["batch_size"], row["temperature"], row["config"]) for row in document["results"]]
    assert keys == [(b, t, p) for b in (1, 3) for t in (0.0, 0.5) for p in ("none", "ngram")]
    assert all(row["outputs_equal"] is True for row in document["results"])
    assert all(row["emitted_tokens"] == 30 for row in document["results"])
    assert result.stdout.count("ngram") >= 4
    assert "comparing" not in result.stdout
    jsonschema.validate(document, kept_schema(), jsonschema.Draft202012Validator)
    assert document["recommendation"] in page.read_text()
    assert " ".join(document["recommendation"].split()) in " ".join(result.stdout.split())


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
        (["--limit", "0"], "--limit: should be 1 or more (got 0)"),
        (["--repeats", "-3"], "--repeats: should be 1 or more (got -3)"),
        (["--budget", "nan"], "--budget: should be 1 or more (got nan)"),
        (["--min-effect", "2"], "--min-effect: should be from 0 to 1 (got 2)"),
        (["--min-effect", "nan"], "(got nan)"),
        (["--traffic-speed", "0"], "--traffic-speed: should be 0.001 or more (got 0)"),
        (["--json", ""], "--json: needs the name of a file"),
        (["--json", "a.out", "--html", "./a.out"], "--html: 'a.out' is the file of --json as well"),
        (["--json", "a.out", "--baseline", "a.out"], "--baseline: 'a.out' is the file of --json as well"),
        (["--journal", "a.out", "--html", "a.out"], "each needs its own"),
        (["--html", "no/such/folder/out.html"], "--html"),
        (["--journal", "no/such/folder/run.journal"], "--journal"),
        (["--baseline", "no_such_file.json"], "--baseline"),
        (["--check-law", "--temperature", "0"], "--check-law: means nothing at temperature 0 alone"),
        (["--variant", "k3"], "--variant"),
        (["--variant", "k3:num_draft_tokens=0"], "--variant k3"),
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

    def interrupted(engine: EmbeddedEngine, requests: Sequence[CompareRequest], *load: Any) -> BlockRun:
        nonlocal num_runs
        num_runs += 1
        if num_runs == interrupt_at:
            raise KeyboardInterrupt
        return run_block(engine, requests, *load)

    monkeypatch.setattr(measure_module, "run_block", interrupted)
    out = tmp_path / "out.json"
    result = run(
        *("--workload", str(workload_file), "--batch-sizes", "1", "--max-tokens", "4", "--json", str(out)),
        *("--proposers", "ngram", "--repeats", "1", "--html", str(tmp_path / "out.html")),
    )
    assert result.exit_code == 130
    assert out.exists() == bool(num_blocks), "nothing complete, nothing written"
    assert (tmp_path / "out.html").exists() == bool(num_blocks)
    told = "interrupted, blocks are missing" if num_blocks else "interrupted before the first block"
    assert told in " ".join(result.output.split())
    if num_blocks:
        document = json.loads(out.read_text())
        assert document["interrupted"] is True
        assert [row["num_blocks"] for row in document["results"]] == [num_blocks] * 2
        assert "ngram" in result.stdout


def short_run(workload_file: Path, *arguments: str) -> Result:
    return run(
        *("--workload", str(workload_file), "--batch-sizes", "1", "--max-tokens", "4", "--dtype", "float32"),
        *arguments,
    )


def test_by_default_what_cannot_draft_for_the_model_is_left_out_and_named(
    loads: list[Config], workload_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.json"
    result = short_run(workload_file, "--repeats", "1", "--json", str(out))
    assert result.exit_code == 0, result.output
    assert "left out: draft, early_exit cannot draft for this model" in result.stderr
    assert [row["config"] for row in json.loads(out.read_text())["results"]] == ["none", "ngram"]


def test_variants_and_categories(loads: list[Config], workload_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    result = short_run(
        workload_file,
        *("--variant", "k2:num_draft_tokens=2", "--variant", "k3:num_draft_tokens=3", "--by-category"),
        *("--repeats", "2", "--json", str(out)),
    )
    assert result.exit_code == 0, result.output
    rows = json.loads(out.read_text())["results"]
    assert [(row["config"], row["num_draft_tokens"]) for row in rows] == [("none", 0), ("k2", 2), ("k3", 3)]
    assert {row["workload"] for row in rows} == {f"{workload_file}/mine"}
    assert rows[0]["num_blocks"] == 6


def test_a_killed_run_goes_on_and_ends_like_a_whole_one(
    loads: list[Config], workload_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in the middle of the second block: the first is not measured again."""
    journal, num_runs = tmp_path / "run.journal", 0

    class KilledError(BaseException):
        pass

    def killed(engine: EmbeddedEngine, requests: Sequence[CompareRequest], *load: Any) -> BlockRun:
        nonlocal num_runs
        num_runs += 1
        if num_runs == 6:  # two warm-ups, one block, half of the next
            raise KilledError
        return run_block(engine, requests, *load)

    arguments = ["--proposers", "ngram", "--repeats", "1", "--journal", str(journal)]
    monkeypatch.setattr(measure_module, "run_block", killed)
    with pytest.raises(KilledError):
        short_run(workload_file, *arguments).exit_code  # noqa: B018
    num_kept = len(journal.read_text().splitlines())
    assert num_kept == 2
    out = tmp_path / "out.json"
    result = short_run(workload_file, *arguments, "--json", str(out))
    assert result.exit_code == 0, result.output
    assert "going on after 1 blocks" in result.stderr
    assert num_runs == 6 + 2 + 2 * 2, "warm-ups and the two blocks that were missing"
    assert [row["num_blocks"] for row in json.loads(out.read_text())["results"]] == [3, 3]
    other = short_run(workload_file, *arguments, "--seed", "1")
    assert isinstance(other.exception, UserError)
    assert "belongs to another comparison" in str(other.exception)


@pytest.mark.parametrize(("now", "exit_code"), [(1.0, 0), (0.4, 1)])
def test_a_regression_is_shown_and_is_the_exit_code(
    loads: list[Config],
    workload_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    now: float,
    exit_code: int,
) -> None:
    speed = 1.0

    def timed(engine: EmbeddedEngine, requests: Sequence[CompareRequest], *load: Any) -> BlockRun:
        measured = run_block(engine, requests, *load)
        return replace(measured, seconds=1 / speed if engine.proposer else 1.0)

    monkeypatch.setattr(measure_module, "run_block", timed)
    old = tmp_path / "old.json"
    arguments = ["--proposers", "ngram", "--repeats", "2"]
    assert short_run(workload_file, *arguments, "--json", str(old)).exit_code == 0
    speed = now
    result = short_run(workload_file, *arguments, "--baseline", str(old))
    assert result.exit_code == exit_code, result.output
    assert ("REGRESSION" in result.stdout) == bool(exit_code)


def test_a_baseline_without_a_common_cell_says_so(
    loads: list[Config], workload_file: Path, tmp_path: Path
) -> None:
    old = tmp_path / "old.json"
    arguments = ["--proposers", "ngram", "--repeats", "1"]
    assert short_run(workload_file, *arguments, "--json", str(old)).exit_code == 0
    result = short_run(workload_file, *arguments, "--temperature", "0.5", "--baseline", str(old))
    assert result.exit_code == 0
    assert "has no cell and configuration in common" in result.stderr


@pytest.mark.parametrize("changed", [["--max-tokens", "5"], ["--limit", "2"]])
def test_a_baseline_of_other_requests_is_refused(
    loads: list[Config], workload_file: Path, tmp_path: Path, changed: list[str]
) -> None:
    old = tmp_path / "old.json"
    arguments = ["--proposers", "ngram", "--repeats", "1"]
    assert short_run(workload_file, *arguments, "--json", str(old)).exit_code == 0
    result = short_run(workload_file, *arguments, *changed, "--baseline", str(old))
    assert isinstance(result.exception, UserError)
    assert "held other requests" in str(result.exception)


def test_a_baseline_of_other_options_is_compared_and_told(
    loads: list[Config], workload_file: Path, tmp_path: Path
) -> None:
    old = tmp_path / "old.json"
    arguments = ["--proposers", "ngram", "--repeats", "1"]
    assert short_run(workload_file, *arguments, "--json", str(old), "--num-draft-tokens", "3").exit_code == 0
    result = short_run(workload_file, *arguments, "--baseline", str(old), "--num-draft-tokens", "4")
    told = " ".join(result.stdout.split())
    assert "--baseline: ngram: num_draft_tokens was 3 then and is 4 now" in told
    assert "--baseline: 1 of 1 cells could not be held against it: too few blocks" in told


def test_a_run_within_a_budget_ends(loads: list[Config], workload_file: Path, tmp_path: Path) -> None:
    """Without --repeats: until the looks are used up, a verdict is clear, or the budget is spent."""
    out = tmp_path / "out.json"
    result = short_run(workload_file, "--proposers", "ngram", "--budget", "2", "--json", str(out))
    assert result.exit_code == 0, result.output
    document = json.loads(out.read_text())
    assert document["design"]["budget_s"] == 2.0
    assert document["results"][1]["num_blocks"] >= 1
