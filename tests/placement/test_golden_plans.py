"""Plans worked out by hand, with their reasons."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from placement_cases import GB, cluster, need, node, request

from foredraft.scheduler.hardware_model.cost_model import Roofline
from foredraft.scheduler.hardware_model.hardware import GPUS
from foredraft.scheduler.hardware_model.language_models import MODELS
from foredraft.scheduler.placement.errors import PlacementError
from foredraft.scheduler.placement.models import ModelNeed, Request
from foredraft.scheduler.placement.plan import Plan, Rejected
from foredraft.scheduler.placement.planner import make_plan

CROWDED = {"num_replicas": 2, "batch_size": 24}
"""On an L4 (24 GB, 21.6 of them for us) a target then has 16.1 GB of weights and 3.2 GB of cache; the draft
with 2.5 GB and 0.8 GB does not fit beside it."""


def rejected(plan: Plan) -> dict[str, Rejected]:
    return {one.strategy: one for one in plan.rejected}


def test_with_room_the_draft_shares_its_targets_gpu() -> None:
    plan = make_plan(cluster(node("a", 8), node("b", 8)), request(num_replicas=4))
    assert plan.strategy == "colocate"
    assert [bundle.node for replica in plan.replicas for bundle in replica.target.bundles] == ["a"] * 4
    assert plan.drafts == ()
    assert re.fullmatch(r"9\.\d% fewer tokens/s on 8 GPUs, .*waits 1 ms.*", rejected(plan)["split"].reason)
    assert "1 other targets" in rejected(plan)["shared-draft"].reason
    assert "it would not draft at all" in rejected(plan)["cpu-draft"].reason
    memory = plan.replicas[0].target.memory
    kv_bytes = MODELS["llama-3.2-1b"].kv_values * 2 * 8 * 1024
    assert memory.weights_bytes == int(8.03e9) * 2
    assert memory.draft_bytes == int(1.24e9 * 2) + kv_bytes
    assert memory.reserve_bytes == 8 * GB
    assert memory.total_bytes == 80 * GB


def test_colocated_tokens_per_second_follow_from_the_cost_model() -> None:
    plan = make_plan(cluster(node("a", 1)), request(acceptance=(0.8, 0.5)))
    target = Roofline(GPUS["h100"], MODELS["llama-3.1-8b"], MODELS["llama-3.2-1b"], 1024)
    two_s = target.pass_s(8, 24) + 2 * target.draft_step_s(8)
    assert plan.num_draft_tokens == 2
    assert plan.tokens_per_s == pytest.approx(8 * (1 + 0.8 + 0.4) / two_s)


@pytest.mark.parametrize(
    ("gpus", "strategy", "num_drafts"), [(4, "split", 2), (3, "shared-draft", 1), (2, "cpu-draft", 2)]
)
def test_a_crowded_gpu_sends_the_draft_where_room_is(gpus: int, strategy: str, num_drafts: int) -> None:
    nodes = (node("a", gpus, "l4", ram_gb=500),)
    plan = make_plan(cluster(*nodes), request(**CROWDED))
    assert (plan.strategy, len(plan.drafts)) == (strategy, num_drafts)
    assert "GPU memory is" in rejected(plan)["colocate"].reason
    assert "for the draft" in rejected(plan)["colocate"].reason
    if gpus < 4:
        assert "GPUs: no place for 1 of the 4" in rejected(plan)["split"].reason or gpus == 2


def test_shared_drafts_are_divided_among_targets() -> None:
    plan = make_plan(
        cluster(node("a", 8, "l4")), request(num_replicas=6, batch_size=24, strategy="shared-draft")
    )
    assert sorted(replica.draft or 0 for replica in plan.replicas) == [0, 0, 0, 1, 1, 1]
    assert "2 of 1 GPU, 3 targets each" in "\n".join(plan.reasons)


def test_a_perfect_draft_pays_for_a_gpu_of_its_own() -> None:
    """Drafting ahead always survives: all of it is hidden, and only the call is left to pay."""
    perfect = request(batch_size=1, acceptance=(1.0,) * 8, target=need("llama-3.1-70b", tensor_parallel=4))
    plan = make_plan(cluster(node("a", 8)), perfect)
    assert plan.strategy == "split"
    assert "take turns" in rejected(plan)["colocate"].reason


def test_a_slow_network_keeps_the_draft_on_the_node() -> None:
    split = request(num_replicas=2, strategy="split")
    plan = make_plan(cluster(node("a", 4), node("b", 4)), split)
    places = [
        (one.target.bundles[0].node, plan.drafts[one.draft or 0].bundles[0].node) for one in plan.replicas
    ]
    assert places == [("a", "a"), ("a", "a")]
    assert "on the node of its targets" in "\n".join(plan.reasons)


def test_drafts_go_to_the_labelled_node() -> None:
    draft = need("llama-3.2-1b", labels={"pool": "drafts"})
    plan = make_plan(
        cluster(node("a", 4), node("b", 4, "l40s", pool="drafts")),
        request(draft=draft, num_replicas=2, strategy="split", batch_size=1),
    )
    assert {one.target.bundles[0].node for one in plan.replicas} == {"a"}
    assert [draft.bundles[0].node for draft in plan.drafts] == ["b", "b"]
    assert plan.drafts[0].bundles[0].node_labels == (("pool", "drafts"),)
    assert "over the network" in "\n".join(plan.reasons)


def test_tensor_parallel_gpus_are_in_one_node() -> None:
    wide = request(target=need("llama-3.1-8b", tensor_parallel=4), draft=None, proposer="ngram")
    with pytest.raises(PlacementError, match=r"no place for 4 of the 4 .*, 4 in one .* 6, at most 3 in one"):
        make_plan(cluster(node("a", 3), node("b", 3)), wide)


def test_pipeline_stages_may_be_in_two() -> None:
    target = need("llama-3.1-70b", tensor_parallel=2, pipeline_parallel=2)
    plan = make_plan(cluster(node("a", 2), node("b", 2)), request(target=target))
    worker = plan.replicas[0].target
    assert [(bundle.node, bundle.gpus) for bundle in worker.bundles] == [("a", 2), ("b", 2)]
    assert worker.strategy == "PACK"


def test_the_fastest_gpus_come_first() -> None:
    plan = make_plan(cluster(node("slow", 8, "l4"), node("fast", 2, "h100")), request(num_replicas=3))
    assert [replica.target.bundles[0].node for replica in plan.replicas] == ["fast", "fast", "slow"]


def test_half_a_gpu_each() -> None:
    shares = request(
        target=need("qwen2.5-0.5b", gpu_share=0.5),
        draft=need("smollm2-135m", gpu_share=0.25),
        num_replicas=2,
        strategy="split",
    )
    plan = make_plan(cluster(node("a", 2)), shares)
    assert [replica.target.bundles[0].gpus for replica in plan.replicas] == [0.5, 0.5]
    assert [draft.bundles[0].gpus for draft in plan.drafts] == [0.25, 0.25]
    assert plan.drafts[0].gpu_memory_fraction == pytest.approx(0.225)
    assert plan.drafts[0].memory.total_bytes == 20 * GB


def test_without_gpus_targets_run_on_cpus() -> None:
    small = request(
        target=need("smollm2-135m"),
        draft=None,
        proposer="ngram",
        device="cpu",
        cpus_per_worker=2,
        num_replicas=2,
    )
    plan = make_plan(cluster(node("a", 0, cpus=2, ram_gb=8), node("b", 0, cpus=2, ram_gb=8)), small)
    bundles = [bundle for replica in plan.replicas for bundle in replica.target.bundles]
    assert [(one.gpus, one.cpus, one.node) for one in bundles] == [(0, 2, "a"), (0, 2, "b")]
    assert bundles[0].memory_bytes == plan.replicas[0].target.memory.total_bytes


@pytest.mark.parametrize(
    ("nodes", "change", "message"),
    [
        ((node("a", 8),), {"num_replicas": 9}, "GPUs: no place for 1 of the 9 needed, 1 in one node"),
        ((node("a", 8, cpus=4),), {"num_replicas": 6}, "colocate: CPUs: 2 short"),
        ((node("a", 8, ram_gb=5),), {"num_replicas": 3}, "colocate: RAM: 2.1 GB short"),
        ((node("a", 8, "l4"),), {"batch_size": 500}, "split: target: GPU memory is 68.4 GB short"),
        ((node("a", 0),), {}, "target: needs GPUs, and the nodes have none: 1 short"),
        ((), {}, "nodes: there are none"),
        ((node("a", 8),), {"target": need("llama-3.1-8b", labels={"pool": "x"})}, "labelled pool=x"),
    ],
)
def test_what_is_short(nodes: tuple[object, ...], change: dict[str, object], message: str) -> None:
    with pytest.raises(PlacementError, match=re.escape(message)):
        make_plan(cluster(*nodes), request(**change))  # type: ignore[arg-type]


def test_a_gpu_larger_by_what_is_short_suffices() -> None:
    crowded = request(**CROWDED, strategy="colocate")
    small = node("a", 2, "l4")
    with pytest.raises(PlacementError) as failed:
        make_plan(cluster(small), crowded)
    short = float(re.findall(r"GPU memory is ([0-9.]+) GB short", str(failed.value))[0])
    assert small.gpu is not None
    larger, not_enough = (
        replace(small, gpu=replace(small.gpu, memory=small.gpu.memory + (short + more) * GB))
        for more in (0.1, -0.1)
    )
    assert make_plan(cluster(larger), crowded).strategy == "colocate"
    with pytest.raises(PlacementError):
        make_plan(cluster(not_enough), crowded)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"draft": None}, "draft: the proposer draft needs a draft model"),
        ({"proposer": "ngram"}, "draft: the proposer draft needs a draft model"),
        ({"draft": None, "proposer": "ngram", "strategy": "split"}, "strategy: should be auto or colocate"),
        ({"draft": need("llama-3.2-1b", tensor_parallel=3)}, "should be one of 1, divisors of the target's"),
        ({"draft": need("llama-3.2-1b", pipeline_parallel=2)}, "draft pipeline_parallel: should be 1"),
        (
            {"target": need("llama-3.1-8b", gpu_share=0.5)},
            "draft gpu_share: should be at most the target's, 0.5 (got 1)",
        ),
        ({"device": "cpu", "target": need("llama-3.1-8b", tensor_parallel=2)}, "device: a model on CPUs"),
    ],
)
def test_requests_that_make_no_sense(values: dict[str, object], message: str) -> None:
    with pytest.raises(PlacementError, match=re.escape(message)):
        request(**values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"gpu_share": 0.3}, "gpu_share: should be one of 1, 0.5, 0.25, 0.125 (got 0.3)"),
        ({"gpu_share": 0.5, "tensor_parallel": 2}, "gpu_share: a model on 2 GPUs takes whole ones"),
        ({"pipeline_parallel": 33}, "pipeline_parallel: should be at most 32"),
    ],
)
def test_models_that_make_no_sense(values: dict[str, object], message: str) -> None:
    with pytest.raises(PlacementError, match=re.escape(message)):
        need("llama-3.1-8b", **values)


def test_one_replica_has_nobody_to_share_with() -> None:
    with pytest.raises(PlacementError, match="shared-draft: one replica has nobody"):
        make_plan(cluster(node("a", 8)), request(strategy="shared-draft"))


def test_ten_thousand_gpus() -> None:
    nodes = [node(f"n{number}", 8, ("h100", "l4")[number % 2]) for number in range(1250)]
    plan = make_plan(cluster(*nodes), request(num_replicas=6000))
    assert len(plan.replicas) == 6000
    assert sum(replica.target.bundles[0].gpus for replica in plan.replicas) == 6000


def test_ten_thousand_nodes_no_two_alike() -> None:
    nodes = [node(f"n{number}", 1, ram_gb=100 + number) for number in range(10_000)]
    plan = make_plan(cluster(*nodes), request(num_replicas=5000))
    assert len(plan.replicas) == 5000


def test_two_nodes_of_one_name() -> None:
    with pytest.raises(PlacementError, match="2 are called 'a'"):
        cluster(node("a", 1), node("a", 1))


def test_the_size_of_a_model_is_what_counts() -> None:
    """Explicit bytes: the same as by name."""
    named = need("llama-3.1-8b")
    given = ModelNeed(MODELS["llama-3.1-8b"], int(8.03e9) * 2, 131_072)
    one, other = (Request(target, None, "ngram", num_replicas=2) for target in (named, given))
    assert make_plan(cluster(node("a", 8)), one) == make_plan(cluster(node("a", 8)), other)


def test_a_draft_may_be_on_another_node_than_its_target() -> None:
    """Two pairs do not fit whole: the second draft has to go to the other node."""
    plan = make_plan(cluster(node("a", 3), node("b", 1)), request(num_replicas=2, strategy="split"))
    assert [replica.target.bundles[0].node for replica in plan.replicas] == ["a", "a"]
    assert [draft.bundles[0].node for draft in plan.drafts] == ["a", "b"]
    assert [replica.draft for replica in plan.replicas] == [0, 1]
