"""Where each variant of a deployment goes: one plan after the other, each on what the ones before leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from math import ceil

from foredraft.integration.deploy.plan_options import PlanOptions
from foredraft.integration.deploy.plan_request import plan_request
from foredraft.integration.deploy.schema import LoadedDeployment
from foredraft.integration.deploy.schema_sections import VariantSection
from foredraft.integration.errors import UserError
from foredraft.scheduler.placement.errors import PlacementError
from foredraft.scheduler.placement.plan import Bundle, Plan
from foredraft.scheduler.placement.planner import make_plan
from foredraft.scheduler.placement.shape import Cluster


def plan_variants(deployment: LoadedDeployment, cluster: Cluster) -> dict[str, Plan]:
    """A plan for each variant, by name; with autoscaling, for as many replicas as there may ever be.

    Raises:
        UserError: a variant finds no room; names it and what is short.
    """
    plans = {}
    for variant in deployment.file.variants:
        options = _options(deployment, variant, cluster)
        try:
            plan = make_plan(cluster, plan_request(deployment.configs[variant.name], options))
        except (PlacementError, UserError) as error:
            raise UserError(f"variants: {variant.name}: {error}") from None
        plans[variant.name] = plan
        cluster = _left_by(plan, cluster)
    return plans


def num_replicas(deployment: LoadedDeployment, variant: VariantSection) -> int:
    """How many replicas room is needed for."""
    if deployment.file.autoscaling is not None:
        return deployment.file.autoscaling.max_replicas
    return variant.replicas or deployment.file.replicas


def _options(deployment: LoadedDeployment, variant: VariantSection, cluster: Cluster) -> PlanOptions:
    device = deployment.config(variant.name).device
    on_gpu = device.startswith("cuda") or (device == "auto" and cluster.num_gpus > 0)
    return PlanOptions(
        cluster="auto",
        replicas=num_replicas(deployment, variant),
        strategy="colocate"
        if deployment.file.engine == "vllm"
        else variant.strategy or deployment.file.strategy,
        tensor_parallel=variant.tensor_parallel,
        gpu_share=variant.gpu_share,
        device="gpu" if on_gpu else "cpu",
        cpus_per_worker=variant.cpus_per_worker,
    )


def _left_by(plan: Plan, cluster: Cluster) -> Cluster:
    """The cluster without what a plan takes; of a shared GPU nothing is left to others."""
    bundles = [bundle for replica in plan.replicas for bundle in replica.target.bundles]
    bundles += [bundle for draft in plan.drafts for bundle in draft.bundles]
    gpus, cpus, memory = (_by_node(bundles, name) for name in ("gpus", "cpus", "memory_bytes"))
    nodes = tuple(
        replace(
            node,
            gpus=max(0, node.gpus - ceil(gpus[node.name])),
            cpus=max(0, node.cpus - ceil(cpus[node.name])),
            memory_bytes=max(0, node.memory_bytes - ceil(memory[node.name])),
        )
        for node in cluster.nodes
    )
    return replace(cluster, nodes=nodes)


def _by_node(bundles: Iterable[Bundle], amount: str) -> Counter[str]:
    taken: Counter[str] = Counter()
    for bundle in bundles:
        taken[bundle.node] += getattr(bundle, amount)
    return taken
