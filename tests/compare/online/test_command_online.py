"""``foredraft compare --endpoint`` from the command line, on small servers on this machine."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer
from typer.testing import CliRunner, Result

from foredraft.integration.compare import compare
from foredraft.integration.compare.online import measure as measure_module
from foredraft.integration.compare.results.schema import kept_schema
from foredraft.integration.errors import UserError

MakeServer = Callable[[], Any]


@pytest.fixture
def servers(make_server: MakeServer) -> tuple[Any, Any]:
    """The second is faster."""
    pair = make_server(), make_server()
    pair[0].delay_s, pair[1].delay_s = 0.016, 0.002
    return pair


def run(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(compare)
    return CliRunner().invoke(app, list(arguments))


def endpoints(servers: tuple[Any, Any]) -> list[str]:
    urls = [server.endpoint().url for server in servers]
    return ["--endpoint", f"plain={urls[0]}", "--endpoint", f"ours={urls[1]}"]


def test_from_the_command_line(servers: tuple[Any, Any], workload_file: Path, tmp_path: Path) -> None:
    out, page = tmp_path / "out.json", tmp_path / "out.html"
    servers[1].drafts = True
    result = run(
        *endpoints(servers),
        *("--workload", str(workload_file), "--batch-sizes", "2", "--budget", "8", "--json", str(out)),
        *("--html", str(page)),
    )
    assert result.exit_code == 0, result.output
    document = json.loads(out.read_text())
    schema = kept_schema("online.schema.json")
    jsonschema.validate(document, schema, jsonschema.Draft202012Validator)
    plain, ours = document["results"]
    assert plain["verdict"] is None
    assert ours["speedup"] > 1.2  # how sure that is hangs on what else the machine does
    assert "ours" in result.stdout
    assert "law was not checked" in " ".join(result.stdout.split())
    assert "plain (the first server)" in document["recommendation"]
    assert " ".join(document["recommendation"].split()) in " ".join(result.stdout.split())
    html = page.read_text()
    assert document["recommendation"] in html
    assert "Acceptance by position" in html
    assert "Speedup per workload" in html
    assert document["results"][1]["position_acceptance"] == [1.0, 0.5]
    assert "100 50" in result.stdout


@pytest.mark.parametrize("option", [["--proposers", "ngram"], ["--repeats", "1"], ["--check-law"]])
def test_options_of_the_other_mode_are_refused(
    servers: tuple[Any, Any], workload_file: Path, option: list[str]
) -> None:
    result = run(*endpoints(servers), "--workload", str(workload_file), *option)
    assert isinstance(result.exception, UserError)
    assert f"{option[0]}: means nothing with --endpoint" in str(result.exception)


def short_run(servers: tuple[Any, Any], workload_file: Path, *arguments: str) -> Result:
    return run(
        *endpoints(servers),
        "--workload",
        str(workload_file),
        "--batch-sizes",
        "2",
        "--budget",
        "3",
        *arguments,
    )


def stop_at(monkeypatch: pytest.MonkeyPatch, number: int, error: BaseException) -> list[int]:
    """Makes the ``number``-th block at a server end with ``error``; counts the blocks."""
    serve_block, calls = measure_module.serve_block, [0]

    def stopped(*arguments: Any) -> Any:
        calls[0] += 1
        if calls[0] == number:
            raise error
        return serve_block(*arguments)

    monkeypatch.setattr(measure_module, "serve_block", stopped)
    return calls


@pytest.mark.parametrize(("number", "num_blocks"), [(2, 0), (6, 2)])
def test_ctrl_c_writes_what_is_complete(
    servers: tuple[Any, Any],
    workload_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    num_blocks: int,
) -> None:
    out = tmp_path / "out.json"
    stop_at(monkeypatch, number, KeyboardInterrupt())
    result = short_run(servers, workload_file, "--json", str(out))
    assert result.exit_code == 130
    assert out.exists() == bool(num_blocks)
    told = "interrupted, blocks are missing" if num_blocks else "interrupted before the first block"
    assert told in " ".join(result.output.split())
    if num_blocks:
        document = json.loads(out.read_text())
        assert document["interrupted"] is True
        assert [row["num_blocks"] for row in document["results"]] == [2, 2]


def test_a_killed_run_goes_on_from_its_journal(
    servers: tuple[Any, Any], workload_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KilledError(BaseException):
        pass

    journal, out = tmp_path / "run.journal", tmp_path / "out.json"
    calls = stop_at(monkeypatch, 6, KilledError())
    with pytest.raises(KilledError):
        short_run(servers, workload_file, "--journal", str(journal)).exit_code  # noqa: B018
    assert len(journal.read_text().splitlines()) == 1 + 2
    calls[0] = 100
    result = short_run(servers, workload_file, "--journal", str(journal), "--json", str(out))
    assert result.exit_code == 0, result.output
    assert "going on after 2 blocks" in result.stderr
    num_blocks = json.loads(out.read_text())["results"][1]["num_blocks"]
    assert (calls[0] - 100) // 2 == num_blocks - 2, "what was there is not measured again"
    assert len(journal.read_text().splitlines()) == 1 + num_blocks
    other = short_run(servers, workload_file, "--journal", str(journal), "--seed", "1")
    assert "belongs to another comparison (seed differ)" in str(other.exception)


def test_a_regression_is_shown_and_is_the_exit_code(
    servers: tuple[Any, Any], workload_file: Path, tmp_path: Path
) -> None:
    old = tmp_path / "old.json"
    assert short_run(servers, workload_file, "--json", str(old)).exit_code == 0
    assert short_run(servers, workload_file, "--baseline", str(old)).exit_code == 0
    servers[1].delay_s = 0.03
    result = short_run(servers, workload_file, "--baseline", str(old), "--budget", "10")
    assert result.exit_code == 1, result.output
    assert "REGRESSION" in result.stdout


def test_results_of_unequal_workloads_are_refused(
    servers: tuple[Any, Any], workload_file: Path, tmp_path: Path
) -> None:
    old = tmp_path / "old.json"
    assert short_run(servers, workload_file, "--json", str(old)).exit_code == 0
    workload_file.write_text(workload_file.read_text().replace("abc", "xyz"))
    result = short_run(servers, workload_file, "--baseline", str(old))
    assert isinstance(result.exception, UserError)
    assert "held other requests" in str(result.exception)


def test_a_result_of_the_other_mode_is_refused(
    servers: tuple[Any, Any], workload_file: Path, tmp_path: Path, make_document: Callable[..., Any]
) -> None:
    old = tmp_path / "old.json"
    old.write_text(make_document([]).model_dump_json())
    result = short_run(servers, workload_file, "--baseline", str(old))
    assert isinstance(result.exception, UserError)
    assert "is of the other mode: it compares configurations, this run servers" in str(result.exception)


@pytest.mark.parametrize("dead", [[0], [1], [0, 1]])
def test_where_nothing_could_be_compared_there_is_no_advice(
    servers: tuple[Any, Any], workload_file: Path, tmp_path: Path, dead: list[int]
) -> None:
    """A dead baseline was recommended, with exit code 0."""
    out = tmp_path / "out.json"
    for place in dead:
        servers[place].fault = "status"
    result = short_run(servers, workload_file, "--json", str(out))
    assert result.exit_code == 3, result.output
    assert "nothing could be compared" in result.stderr
    advice = json.loads(out.read_text())["recommendation"]
    assert advice == "Nothing could be compared with plain (the first server), so there is no advice."


def test_a_server_that_fails_now_is_a_regression(
    servers: tuple[Any, Any], workload_file: Path, tmp_path: Path
) -> None:
    """It counted as 1.0x, and the gate was green."""
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    assert short_run(servers, workload_file, "--json", str(old)).exit_code == 0
    servers[1].fault = "status"
    result = short_run(servers, workload_file, "--baseline", str(old), "--json", str(new))
    assert result.exit_code == 1, result.output
    assert "ours, 2 in flight, temperature 0: cannot be compared now" in " ".join(result.stdout.split())
    document = json.loads(new.read_text())
    jsonschema.validate(document, kept_schema("online.schema.json"), jsonschema.Draft202012Validator)
    (found,) = document["regressions"]
    assert (found["config"], found["now"]) == ("ours", None)
    assert found["before"] > 1


def test_a_rate_whose_first_block_exceeds_the_budget_is_refused(
    servers: tuple[Any, Any], workload_file: Path
) -> None:
    result = run(*endpoints(servers), "--workload", str(workload_file), "--rates", "0.01", "--budget", "4")
    assert isinstance(result.exception, UserError)
    message = str(result.exception)
    assert "--budget: a block of requests at 0.01/s takes " in message
    assert message.endswith(" s for all servers, more than 4; raise it, or --rates")
    assert servers[0].bodies == []


def test_half_a_letter_does_not_lose_the_run(
    servers: tuple[Any, Any], workload_file: Path, tmp_path: Path
) -> None:
    files = [tmp_path / name for name in ("out.json", "out.html", "run.journal")]
    options = zip(("--json", "--html", "--journal"), map(str, files), strict=True)
    servers[1].text = "one \ud800 three four"
    result = short_run(servers, workload_file, *(part for pair in options for part in pair))
    assert result.exit_code == 0, result.output
    assert all(file.exists() for file in files)


def test_the_page_says_what_was_not_checked(
    servers: tuple[Any, Any], workload_file: Path, tmp_path: Path
) -> None:
    page = tmp_path / "out.html"
    assert short_run(servers, workload_file, "--html", str(page)).exit_code == 0
    assert "<dt>output check</dt><dd>the law was not checked; at 0 texts" in page.read_text()


def test_too_few_blocks_are_told(servers: tuple[Any, Any], workload_file: Path) -> None:
    servers[0].delay_s = servers[1].delay_s = 0.05
    result = short_run(servers, workload_file, "--budget", "2.5")
    assert "give no interval; raise --budget for more" in " ".join(result.stdout.split())


def test_the_key_is_sent_and_is_nowhere_else(
    servers: tuple[Any, Any], workload_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "SECRET")
    for server in servers:
        server.key = "SECRET"
    servers[1].refuses = "abc"
    files = [tmp_path / name for name in ("out.json", "out.html", "run.journal")]
    options = zip(("--json", "--html", "--journal"), map(str, files), strict=True)
    result = short_run(
        servers, workload_file, "--api-key-env", "MY_KEY", *(part for pair in options for part in pair)
    )
    assert result.exit_code == 3, "all was refused"
    assert "***" in result.stdout, "the server repeated the key"
    assert "SECRET" not in result.output
    assert not any("SECRET" in file.read_text() for file in files)


def test_recorded_traffic_of_lengths_alone(servers: tuple[Any, Any], tmp_path: Path) -> None:
    traffic, out = tmp_path / "traffic.jsonl", tmp_path / "out.json"
    lines = [{"prompt_tokens": 40, "max_tokens": 3, "arrival_s": number * 0.2} for number in range(8)]
    traffic.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    result = run(
        *endpoints(servers),
        *("--traffic", str(traffic), "--traffic-speed", "20", "--budget", "4", "--json", str(out)),
    )
    assert result.exit_code == 0, result.output
    document = json.loads(out.read_text())
    jsonschema.validate(document, kept_schema("online.schema.json"), jsonschema.Draft202012Validator)
    row = document["results"][1]
    assert (row["workload"], row["recorded_arrivals"], row["temperature"]) == ("traffic.jsonl", True, None)
    assert row["speedup"] > 1.2
    assert "At recorded arrivals, " in document["recommendation"]
    assert {len(body["messages"][0]["content"].split()) for body in servers[0].bodies} == {30}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--workload", "chat"], "--workload: means nothing with --traffic"),
        (["--rates", "1"], "--rates: means nothing with --traffic"),
        (["--temperatures", "0"], "--temperatures: means nothing with --traffic"),
        (["--budget", "5"], "--budget: a block of the recorded traffic takes 20 s"),
    ],
)
def test_what_does_not_go_with_recorded_traffic_is_refused(
    servers: tuple[Any, Any], tmp_path: Path, arguments: list[str], named: str
) -> None:
    traffic = tmp_path / "traffic.jsonl"
    traffic.write_text('{"prompt": "a", "arrival_s": 0}\n{"prompt": "b", "arrival_s": 10}\n')
    result = run(*endpoints(servers), "--traffic", str(traffic), *arguments)
    assert isinstance(result.exception, UserError)
    assert named in str(result.exception)
    assert servers[0].bodies == []


@pytest.mark.parametrize("option", ["--traffic", "--model-name", "--api-key-env"])
def test_options_of_servers_without_servers_are_refused(option: str) -> None:
    result = run(option, "x")
    assert isinstance(result.exception, UserError)
    assert f"{option}: means nothing without --endpoint" in str(result.exception)
