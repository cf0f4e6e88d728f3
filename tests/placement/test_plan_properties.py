"""What holds for every plan, over random clusters and requests."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from placement_cases import better, clusters, requests

from foredraft.scheduler.placement.errors import PlacementError
from foredraft.scheduler.placement.layout import STRATEGIES, why_pointless
from foredraft.scheduler.placement.models import Request
from foredraft.scheduler.placement.plan import Plan, Strategy, WorkerPlan
from foredraft.scheduler.placement.planner import make_plan
from foredraft.scheduler.placement.shape import Cluster

many = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def plan_or_none(cluster: Cluster, request: Request) -> Plan | None:
    try:
        return make_plan(cluster, request)
    except PlacementError:
        return None


def asked_for(request: Request, strategy: Strategy) -> Request:
    """The request with this strategy, where it makes sense; else as it is."""
    sensible = (request.draft or strategy == "colocate") and not why_pointless(request, strategy)
    return replace(request, strategy=strategy) if sensible else request


any_request = st.builds(asked_for, requests(), st.sampled_from(STRATEGIES)) | requests()


def workers(plan: Plan) -> list[WorkerPlan]:
    return [replica.target for replica in plan.replicas] + list(plan.drafts)


@many
@given(clusters(), any_request)
def test_no_node_gives_more_than_it_has(cluster: Cluster, request: Request) -> None:
    plan = plan_or_none(cluster, request)
    gpus, cpus, ram = Counter[str](), Counter[str](), Counter[str]()
    for worker in workers(plan) if plan else []:
        for bundle in worker.bundles:
            gpus[bundle.node] += bundle.gpus  # type: ignore[assignment]
            cpus[bundle.node] += bundle.cpus  # type: ignore[assignment]
            ram[bundle.node] += bundle.memory_bytes
    for node in cluster.nodes:
        assert gpus[node.name] <= node.gpus
        assert cpus[node.name] <= node.cpus
        assert ram[node.name] <= node.memory_bytes


@many
@given(clusters(), any_request)
def test_no_worker_takes_more_memory_than_its_devices_have(cluster: Cluster, request: Request) -> None:
    plan = plan_or_none(cluster, request)
    by_name = {node.name: node for node in cluster.nodes}
    for worker in workers(plan) if plan else []:
        need = request.target if worker.role == "target" else request.draft
        assert need is not None
        for bundle in worker.bundles:
            gpu = by_name[bundle.node].gpu
            held = gpu.memory * need.gpu_share if bundle.gpus and gpu else bundle.memory_bytes
            assert worker.memory.total_bytes <= held
            assert min(worker.memory.kv_bytes, worker.memory.reserve_bytes) > 0
        heads = min(need.tensor_parallel, need.size.num_kv_heads) * need.pipeline_parallel
        needed = need.kv_bytes_per_token * request.batch_size * request.context / heads
        sharing = (
            sum(replica.draft == 0 for replica in plan.replicas) if plan and worker.role == "draft" else 1
        )
        assert worker.memory.kv_bytes >= int(needed) * max(1, sharing)


def _sharing(plan: Plan | None) -> int:
    """Targets of the draft that has most."""
    return max(Counter(replica.draft for replica in plan.replicas).values()) if plan else 0


@many
@given(clusters(), any_request)
def test_what_belongs_together_is_in_one_bundle(cluster: Cluster, request: Request) -> None:
    plan = plan_or_none(cluster, request)
    if plan is None:
        return
    target = request.target
    assert len(plan.replicas) == request.num_replicas
    for replica in plan.replicas:
        for bundle in replica.target.bundles:
            whole = target.tensor_parallel * target.gpu_share * (request.device == "gpu")
            assert bundle.gpus >= whole
        total = sum(bundle.gpus for bundle in replica.target.bundles)
        assert total == target.num_devices * target.gpu_share * (request.device == "gpu")
        nodes = {bundle.node for bundle in replica.target.bundles}
        assert replica.target.strategy == ("STRICT_PACK" if len(nodes) == 1 else "PACK")
    used = {replica.draft for replica in plan.replicas}
    assert used == ({None} if plan.strategy == "colocate" else set(range(len(plan.drafts))))


@many
@given(clusters(), any_request)
def test_labels_are_kept(cluster: Cluster, request: Request) -> None:
    plan = plan_or_none(cluster, request)
    by_name = {node.name: node for node in cluster.nodes}
    for replica in plan.replicas if plan else ():
        for bundle in replica.target.bundles:
            assert request.target.labels.items() <= by_name[bundle.node].labels.items()
            assert request.target.labels.items() <= dict(bundle.node_labels).items()


@settings(parent=many, max_examples=400)
@given(clusters(), any_request, st.data())
def test_a_better_cluster_never_gives_a_worse_plan(
    cluster: Cluster, request: Request, data: st.DataObject
) -> None:
    before = plan_or_none(cluster, request)
    if before is None:
        return
    after = make_plan(data.draw(better(cluster)), request)
    assert after.tokens_per_s >= before.tokens_per_s * (1 - 1e-9)


@many
@given(clusters(), any_request)
def test_the_same_question_has_the_same_answer(cluster: Cluster, request: Request) -> None:
    assert plan_or_none(cluster, request) == plan_or_none(cluster, request)


@many
@given(clusters(), requests())
def test_auto_is_the_fastest_strategy(cluster: Cluster, request: Request) -> None:
    plan = plan_or_none(cluster, request)
    for strategy in STRATEGIES:
        one = asked_for(request, strategy)
        alone = plan_or_none(cluster, one) if one is not request else None
        assert alone is None or (plan is not None and plan.tokens_per_s >= alone.tokens_per_s)


SHORT = re.compile(
    r"GPUs: no place for [0-9.]+ of|(GPUs|CPUs|GPU memory|RAM)\b.* [0-9.]+( GB)? short|labelled|nobody|"
    r"that is split"
)


@many
@given(clusters(), any_request)
def test_what_does_not_fit_says_what_is_short(cluster: Cluster, request: Request) -> None:
    try:
        plan = make_plan(cluster, request)
    except PlacementError as error:
        reasons = str(error).split("; ")[1:]
        assert len(reasons) >= 1
    else:
        reasons = [one.reason for one in plan.rejected if one.tokens_per_s is None]
    for reason in reasons:
        if reason.startswith(("the nodes have", "needs")):
            continue  # the second half of a line
        assert SHORT.search(reason), reason
    assert "\n" not in "".join(reasons)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_random_cases_reach_every_strategy(strategy: Strategy) -> None:
    """The properties above would hold for plans that never come."""

    @settings(max_examples=300, deadline=None, database=None, derandomize=True)
    @given(clusters(), requests())
    def collect(cluster: Cluster, request: Request) -> None:
        one = asked_for(request, strategy)
        if one is not request and plan_or_none(cluster, one):
            found.append(1)

    found: list[int] = []
    collect()
    assert len(found) >= 5
