"""Whole online comparisons of small servers on this machine."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer
from typer.testing import CliRunner, Result

from foredraft.integration.compare import compare
from foredraft.integration.compare.online import measure as measure_module
from foredraft.integration.compare.online.measure import MAX_FAILED_BLOCKS, OnlineBlock, measure_online
from foredraft.integration.compare.online.plan import OnlinePlan, cell_requests, closed_loops, parse_rates
from foredraft.integration.compare.online.rows import online_rows
from foredraft.integration.compare.results.schema import kept_schema
from foredraft.integration.compare.statistics.looks import LOOKS
from foredraft.integration.errors import UserError
from foredraft.integration.workloads import WorkloadPrompt

MakeServer = Callable[[], Any]
MODELS = {"a": "toy", "b": "toy"}


@pytest.fixture
def servers(make_server: MakeServer) -> tuple[Any, Any]:
    return make_server(), make_server()


@pytest.fixture
def plan(servers: tuple[Any, Any]) -> OnlinePlan:
    return OnlinePlan(
        endpoints=(servers[0].endpoint("a"), servers[1].endpoint("b")),
        prompts={"toy": [WorkloadPrompt(str(number), "c", (f"prompt {number}",)) for number in range(4)]},
        loads=closed_loops([2]),
        temperatures=(0.0,),
        max_tokens=8,
        seed=0,
        budget_s=20.0,
        min_effect=0.01,
    )


def measured(plan: OnlinePlan) -> list[OnlineBlock]:
    return list(measure_online(plan, MODELS, lambda used, left, num_open: None))


def test_a_slower_server_is_called_slower(servers: tuple[Any, Any], plan: OnlinePlan) -> None:
    servers[0].delay_s, servers[1].delay_s = 0.004, 0.016
    blocks = measured(plan)
    assert len(blocks) in LOOKS[:4]
    baseline, other = online_rows(blocks, plan, MODELS)
    assert (baseline.verdict, baseline.speedup) == (None, 1.0)
    assert other.verdict == "slower"
    assert other.speedup < 0.7
    assert (other.num_equal_texts, other.num_failed) == (other.num_requests, 0)
    assert other.time_to_first_token_s is not None
    assert other.time_to_first_token_s.median >= 0.016


def test_both_are_asked_the_same_with_so_many_in_flight(servers: tuple[Any, Any], plan: OnlinePlan) -> None:
    blocks = measured(replace(plan, budget_s=2.0))
    asked = [sorted(json.dumps(body) for body in server.bodies) for server in servers]
    assert asked[0] == asked[1]
    assert len(asked[0]) == 1 + 4 * len(blocks), "a warm-up, and four requests a block"
    assert min(server.most_in_flight for server in servers) >= 2, "a server may count one that is just done"


def test_arrivals_compare_latencies(servers: tuple[Any, Any], plan: OnlinePlan) -> None:
    servers[0].delay_s, servers[1].delay_s = 0.002, 0.02
    plan = replace(plan, loads=parse_rates("200"))
    _, other = online_rows(measured(plan), plan, MODELS)
    assert other.arrivals_per_s == 200
    assert other.verdict == "slower"


def test_a_server_that_dies_ends_its_comparison(servers: tuple[Any, Any], plan: OnlinePlan) -> None:
    servers[1].fault = "status"
    blocks = measured(plan)
    assert len(blocks) == MAX_FAILED_BLOCKS
    _, other = online_rows(blocks, plan, MODELS)
    assert (other.verdict, other.speedup_low) == ("no difference shown", None)
    assert (other.num_failed, other.num_requests, other.first_error) == (12, 12, "HTTP 500")
    assert other.tokens_per_s is None


def test_a_baseline_that_dies_ends_the_cell(servers: tuple[Any, Any], plan: OnlinePlan) -> None:
    servers[0].fault = "cut"
    assert len(measured(plan)) == MAX_FAILED_BLOCKS


def test_a_block_with_a_failure_is_not_compared(
    servers: tuple[Any, Any], plan: OnlinePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, num_sent = measure_module.send, 0

    def flaky(endpoint: Any, *arguments: Any) -> Any:
        nonlocal num_sent
        reply = send(endpoint, *arguments)
        num_sent += endpoint.name == "b"
        return replace(reply, error="broken") if endpoint.name == "b" and num_sent == 3 else reply

    monkeypatch.setattr(measure_module, "send", flaky)
    blocks = measured(replace(plan, budget_s=1.5))
    baseline, other = online_rows(blocks, plan, MODELS)
    assert other.num_failed == 1
    assert other.num_blocks == len(blocks) - 1
    assert baseline.num_blocks == len(blocks)


def test_acceptance_comes_from_the_metrics_of_the_server(
    servers: tuple[Any, Any], plan: OnlinePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "vllm:spec_decode_num_{}_tokens_total{{}} {}\n"
    pages = iter(range(0, 10_000, 10))
    original = measure_module.read_counts

    def counting(endpoint: Any, timeout_s: float) -> Any:
        drafted = next(pages)
        servers[1].metrics = name.format("draft", drafted) + name.format("accepted", drafted / 2)
        return original(endpoint, timeout_s)

    monkeypatch.setattr(measure_module, "read_counts", counting)
    baseline, other = online_rows(measured(replace(plan, budget_s=1.0)), plan, MODELS)
    assert baseline.acceptance_rate is None
    assert other.acceptance_rate == pytest.approx(0.5)


def test_other_texts_are_counted(servers: tuple[Any, Any], plan: OnlinePlan) -> None:
    servers[1].text = "one two three five"
    _, other = online_rows(measured(replace(plan, budget_s=1.0)), plan, MODELS)
    assert other.num_equal_texts == 0


def test_blocks_are_the_same_for_the_same_seed(plan: OnlinePlan) -> None:
    (cell,) = plan.cells()
    one, other = cell_requests(plan, cell), cell_requests(plan, cell)
    assert [next(one) for _ in range(5)] == [next(other) for _ in range(5)]


@pytest.mark.parametrize("text", ["0", "-1", "fast", "1,,2", "nan", "inf"])
def test_bad_rates_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="--rates"):
        parse_rates(text)


def run(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(compare)
    return CliRunner().invoke(app, list(arguments))


def endpoints(servers: tuple[Any, Any]) -> list[str]:
    urls = [server.endpoint().url for server in servers]
    return ["--endpoint", f"plain={urls[0]}", "--endpoint", f"ours={urls[1]}"]


def test_from_the_command_line(servers: tuple[Any, Any], workload_file: Path, tmp_path: Path) -> None:
    servers[0].delay_s, servers[1].delay_s = 0.016, 0.004
    out = tmp_path / "out.json"
    result = run(
        *endpoints(servers),
        *("--workload", str(workload_file), "--batch-sizes", "2", "--budget", "8", "--json", str(out)),
    )
    assert result.exit_code == 0, result.output
    document = json.loads(out.read_text())
    schema = kept_schema("online.schema.json")
    jsonschema.validate(document, schema, jsonschema.Draft202012Validator)
    assert [row["verdict"] for row in document["results"]] == [None, "faster"]
    assert "ours" in result.stdout
    assert "law was not checked" in " ".join(result.stdout.split())


@pytest.mark.parametrize("option", [["--proposers", "ngram"], ["--repeats", "1"], ["--html", "out.html"]])
def test_options_of_the_other_mode_are_refused(
    servers: tuple[Any, Any], workload_file: Path, option: list[str]
) -> None:
    result = run(*endpoints(servers), "--workload", str(workload_file), *option)
    assert isinstance(result.exception, UserError)
    assert f"{option[0]}: means nothing with --endpoint" in str(result.exception)


def test_rates_without_servers_are_refused(workload_file: Path) -> None:
    result = run("--workload", str(workload_file), "--rates", "1")
    assert isinstance(result.exception, UserError)
    assert "--rates: means nothing without --endpoint" in str(result.exception)
