"""``foredraft plan``: where would target and draft go? Starts nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from foredraft.integration.cli_dataclass import with_options
from foredraft.integration.cli_options import with_flags
from foredraft.integration.config_sources import LoadedConfig
from foredraft.integration.deploy.plan_options import AUTO, PlanOptions
from foredraft.integration.errors import UserError

if TYPE_CHECKING:
    from foredraft.scheduler.placement.plan import Plan
    from foredraft.scheduler.placement.shape import Cluster

ONLY = ""
"""Name of a plan that is of no deployment."""


@with_flags(("model", "proposer", "num_draft_tokens"), "--config", "-c")
@with_options(PlanOptions)
def plan(loaded: LoadedConfig, options: PlanOptions) -> None:
    """Plan where target and draft go on a cluster, without starting anything.

    Says for each replica which GPUs it takes, how their memory is divided, and
    why: the tokens/s that a cost model of the GPUs predicts for every strategy.
    What does not fit is named with how much is missing.
    """
    from foredraft.integration.deploy.plan_output import plan_document, print_plan

    plans = _plans(loaded, options)
    if options.as_json:
        documents = {name: plan_document(one) for name, one in plans.items()}
        print(json.dumps({"variants": documents} if options.deployment else documents[ONLY]))
        return
    for name, one in plans.items():
        print_plan(one, Console(), name)


def _plans(loaded: LoadedConfig, options: PlanOptions) -> dict[str, Plan]:
    """By variant of the deployment."""
    from foredraft.integration.deploy.plan_request import plan_request
    from foredraft.scheduler.placement.errors import PlacementError
    from foredraft.scheduler.placement.planner import make_plan

    if options.deployment:
        return _deployment_plans(loaded, options, options.deployment)
    request = plan_request(loaded, options)
    try:
        return {ONLY: make_plan(_cluster(options), request)}
    except PlacementError as error:
        raise UserError(str(error)) from None


def _deployment_plans(loaded: LoadedConfig, options: PlanOptions, path: Path) -> dict[str, Plan]:
    from foredraft.integration.deploy.schema import load_deployment
    from foredraft.integration.deploy.variant_plans import plan_variants

    beside = replace(
        PlanOptions(options.cluster), address=options.address, deployment=path, as_json=options.as_json
    )
    if options != beside or set(loaded.origins.values()) != {"default"}:
        raise UserError(
            "--deployment: its file says what to plan for; "
            "beside it there are only --cluster, --address and --json"
        )
    return plan_variants(load_deployment(path), _cluster(options))


def _cluster(options: PlanOptions) -> Cluster:
    if options.cluster != AUTO:
        from foredraft.integration.deploy.cluster_file import read_cluster

        return read_cluster(Path(options.cluster))
    from foredraft.scheduler.cluster.connect import connect
    from foredraft.scheduler.cluster.errors import ClusterError
    from foredraft.scheduler.placement.from_ray import cluster_from_ray

    try:
        with connect(options.address):
            return cluster_from_ray()
    except ClusterError as error:
        raise UserError(str(error)) from None
