"""Whole online comparisons of small servers on this machine."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from foredraft.integration.compare.load import Load
from foredraft.integration.compare.online import measure as measure_module
from foredraft.integration.compare.online.blocks import OnlineBlock
from foredraft.integration.compare.online.measure import Driver
from foredraft.integration.compare.online.plan import (
    ARRIVALS_IN_FLIGHT,
    OnlinePlan,
    at_rates,
    cell_requests,
    closed_loops,
)
from foredraft.integration.compare.online.requests import prompt_requests, traffic_requests
from foredraft.integration.compare.online.rows import online_overall_rows, online_rows
from foredraft.integration.compare.online.session import MAX_FAILED_BLOCKS, run_online_comparison
from foredraft.integration.compare.online.table import online_notes
from foredraft.integration.compare.progress import progress_line
from foredraft.integration.traffic.records import TrafficRecord
from foredraft.integration.workloads import WorkloadPrompt

MakeServer = Callable[[], Any]
MODELS = {"a": "toy", "b": "toy"}


@pytest.fixture
def servers(make_server: MakeServer) -> tuple[Any, Any]:
    return make_server(), make_server()


@pytest.fixture
def plan(servers: tuple[Any, Any]) -> OnlinePlan:
    prompts = [WorkloadPrompt(str(number), "c", (f"prompt {number}",)) for number in range(4)]
    return OnlinePlan(
        endpoints=(servers[0].endpoint("a"), servers[1].endpoint("b")),
        requests={"toy": prompt_requests(prompts, 8)},
        loads=closed_loops([2]),
        temperatures=(0.0,),
        max_tokens=8,
        seed=0,
        budget_s=20.0,
        min_effect=0.01,
    )


def measured(plan: OnlinePlan) -> list[OnlineBlock]:
    with progress_line() as progress:
        return list(run_online_comparison(Driver(plan, MODELS), {}, progress))


def test_a_slower_server_is_seen_to_be_slower(servers: tuple[Any, Any], plan: OnlinePlan) -> None:
    servers[0].delay_s, servers[1].delay_s = 0.004, 0.016
    blocks = measured(plan)
    baseline, other = online_rows(blocks, plan, MODELS)
    assert (baseline.verdict, baseline.speedup) == (None, 1.0)
    assert other.speedup < 0.8  # how sure that is hangs on what else the machine does
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
    plan = replace(plan, loads=at_rates([200.0]))
    _, other = online_rows(measured(plan), plan, MODELS)
    assert other.arrivals_per_s == 200
    assert other.speedup < 0.8


def test_a_server_that_dies_ends_its_comparison(servers: tuple[Any, Any], plan: OnlinePlan) -> None:
    servers[1].fault = "status"
    blocks = measured(plan)
    assert len(blocks) == MAX_FAILED_BLOCKS
    _, other = online_rows(blocks, plan, MODELS)
    assert (other.verdict, other.speedup_low) == ("too few blocks", None)
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


def test_acceptance_comes_from_the_metrics_of_the_server(servers: tuple[Any, Any], plan: OnlinePlan) -> None:
    servers[1].drafts = True
    baseline, other = online_rows(measured(replace(plan, budget_s=1.0)), plan, MODELS)
    assert (baseline.acceptance_rate, baseline.position_acceptance) == (None, [])
    assert (other.acceptance_rate, other.acceptance_length) == (0.75, 2.5)
    assert other.position_acceptance == [1.0, 0.5]


def test_a_server_that_dies_half_way_keeps_its_blocks(servers: tuple[Any, Any], plan: OnlinePlan) -> None:
    """A warm-up, two whole blocks, and half of the third."""
    servers[1].dies_after = 1 + 2 * 4 + 2
    blocks = measured(plan)
    assert len(blocks) == 2 + MAX_FAILED_BLOCKS
    _, other = online_rows(blocks, plan, MODELS)
    assert (other.num_blocks, other.num_failed, other.num_refused) == (2, 10, 0)
    assert other.tokens_per_s is not None


def test_a_prompt_that_one_server_refuses_goes_to_none_again(
    servers: tuple[Any, Any], plan: OnlinePlan
) -> None:
    servers[1].refuses = "prompt 2"
    blocks = measured(replace(plan, budget_s=1.5))
    _, other = online_rows(blocks, plan, MODELS)
    assert (other.num_failed, other.num_refused) == (1, 1)
    assert other.first_error is not None
    assert "HTTP 400" in other.first_error
    assert other.num_blocks == len(blocks) - 1 > 1
    assert all("2" not in block.prompt_ids for block in blocks[1:])


def test_a_server_that_refuses_everything_ends_its_cell(servers: tuple[Any, Any], plan: OnlinePlan) -> None:
    servers[1].refuses = "prompt"
    (block,) = measured(plan)
    _, other = online_rows([block], plan, MODELS)
    assert (other.num_refused, other.num_blocks) == (4, 0)


def test_a_slow_server_fails_its_blocks(servers: tuple[Any, Any], plan: OnlinePlan) -> None:
    servers[1].delay_s = 0.2
    plan = replace(plan, timeout_s=0.25)
    _, other = online_rows(measured(plan), plan, MODELS)
    assert (other.num_blocks, other.first_error) == (0, "timed out")


def test_a_server_that_hangs_does_not_hold_the_run(
    servers: tuple[Any, Any], plan: OnlinePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request had 300 s, whatever the budget."""
    monkeypatch.setattr(measure_module, "MIN_BLOCK_S", 0.3)
    servers[1].delay_s = 30
    started = time.monotonic()
    (block,) = measured(replace(plan, budget_s=0.5))
    assert time.monotonic() - started < 5
    assert block.runs["b"].failures == ["timed out"] * 4
    assert block.runs["a"].failures == [], "it has its own time"


def test_a_first_block_of_arrivals_that_exceeds_the_budget_does_not_begin(plan: OnlinePlan) -> None:
    assert measured(replace(plan, loads=at_rates([0.01]), budget_s=5.0)) == []


@pytest.mark.parametrize("usage", [10**9, True])
@pytest.mark.parametrize("place", [0, 1])
def test_without_believable_counts_tokens_per_s_are_not_compared(
    servers: tuple[Any, Any], plan: OnlinePlan, usage: object, place: int
) -> None:
    servers[place].usage = usage
    blocks = measured(plan)
    assert len(blocks) == MAX_FAILED_BLOCKS
    rows = online_rows(blocks, plan, MODELS)
    assert (rows[1].num_blocks, rows[1].num_failed, rows[1].speedup_low) == (0, 0, None)
    assert (rows[place].tokens_per_s, rows[place].time_per_output_token_s) == (None, None)
    assert rows[place].latency_s is not None
    assert "tokens (usage.completion_tokens) are missing or impossible" in " ".join(online_notes(rows))


def test_latencies_need_no_counts(servers: tuple[Any, Any], plan: OnlinePlan) -> None:
    servers[0].fault = servers[1].fault = "no_usage"
    servers[1].delay_s = 0.02
    plan = replace(plan, loads=at_rates([200.0]))
    _, other = online_rows(measured(plan), plan, MODELS)
    assert other.speedup < 0.8
    assert other.tokens_per_s is None


def test_texts_are_compared_where_both_answered(servers: tuple[Any, Any], plan: OnlinePlan) -> None:
    """All texts of a server counted as unequal where the baseline had failed."""
    servers[0].fault = "cut"
    rows = online_rows(measured(plan), plan, MODELS)
    assert (rows[1].num_compared_texts, rows[1].num_equal_texts) == (0, 0)
    assert "texts equal" not in " ".join(online_notes(rows))


def test_several_workloads_have_a_row_over_all(servers: tuple[Any, Any], plan: OnlinePlan) -> None:
    servers[0].delay_s, servers[1].delay_s = 0.02, 0.004
    plan = replace(plan, requests=dict.fromkeys(("one", "two"), plan.requests["toy"]))
    rows = online_rows(measured(plan), plan, MODELS)
    (overall,) = online_overall_rows(rows, plan.interval_level, plan.min_effect)
    assert (overall.endpoint, overall.num_workloads) == ("b", 2)
    assert overall.speedup > 1.2
    assert overall.speedup == pytest.approx((rows[1].speedup * rows[3].speedup) ** 0.5)


def test_a_workload_that_could_not_be_compared_leaves_none_over_all(
    servers: tuple[Any, Any], plan: OnlinePlan
) -> None:
    servers[1].refuses = "prompt"
    plan = replace(plan, requests=dict.fromkeys(("one", "two"), plan.requests["toy"]))
    rows = online_rows(measured(plan), plan, MODELS)
    assert len(rows) == 4
    assert online_overall_rows(rows, plan.interval_level, plan.min_effect) == []


def test_recorded_arrivals_keep_their_gaps_and_order(servers: tuple[Any, Any], plan: OnlinePlan) -> None:
    records = [TrafficRecord(prompt=f"{n}", max_tokens=n + 1, arrival_s=n * 0.05) for n in range(4)]
    requests = traffic_requests(records, 8, 0.5, speed=1.0)
    loads = (Load(ARRIVALS_IN_FLIGHT, recorded=True),)
    plan = replace(plan, requests={"log": requests}, loads=loads, temperatures=(None,), budget_s=1.5)
    blocks = measured(plan)
    assert all(run.served.seconds >= 0.15 for block in blocks for run in block.runs.values())
    bodies = servers[0].bodies[1:5]
    assert [body["prompt"] for body in bodies] == ["0", "1", "2", "3"]
    assert [body["max_tokens"] for body in bodies] == [1, 2, 3, 4]
    assert {body["temperature"] for body in bodies} == {0.5}
    _, other = online_rows(blocks, plan, MODELS)
    assert (other.load, other.temperature, other.num_equal_texts) == ("recorded arrivals", None, None)


def test_other_texts_are_counted(servers: tuple[Any, Any], plan: OnlinePlan) -> None:
    servers[1].text = "one two three five"
    _, other = online_rows(measured(replace(plan, budget_s=1.0)), plan, MODELS)
    assert other.num_equal_texts == 0


def test_blocks_are_the_same_for_the_same_seed(plan: OnlinePlan) -> None:
    (cell,) = plan.cells()
    one, other = cell_requests(plan, cell), cell_requests(plan, cell)
    assert [next(one) for _ in range(5)] == [next(other) for _ in range(5)]
