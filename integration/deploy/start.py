"""Starting a deployment on a cluster: all of it, or nothing stays behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from foredraft.integration.deploy.draft_workers import draft_specs
from foredraft.integration.deploy.first_token import ask_first_token
from foredraft.integration.deploy.schema import LoadedDeployment
from foredraft.integration.deploy.take_down import take_down
from foredraft.integration.deploy.variant_plans import plan_variants
from foredraft.integration.deploy.variants import serve_options, served_variant
from foredraft.integration.interrupts import deferred_interrupts
from foredraft.scheduler.cluster.deployment import StartOptions, deployment_exists, start_deployment
from foredraft.scheduler.cluster.errors import NameTakenError
from foredraft.scheduler.cluster.nodes import alive_nodes, head_address
from foredraft.scheduler.cluster.resources import described
from foredraft.scheduler.cluster.serve_app import ServeAddress, check_address_free, run_application
from foredraft.scheduler.placement.from_ray import cluster_from_ray
from foredraft.scheduler.placement.plan import Plan
from foredraft.scheduler.serve import build_application

Progress = Callable[[str], None]
EVERY_INTERFACE = ("0.0.0.0", "::")


@dataclass(frozen=True)
class Running:
    """A deployment that answers.

    Attributes:
        first_token_s: of the first request to each variant, by name.
    """

    name: str
    url: str
    first_token_s: Mapping[str, float]


def start(deployment: LoadedDeployment, progress: Progress) -> Running:
    """Start it on the cluster that this process is connected to.

    Raises:
        UserError, ClusterError, PlacementError: why it cannot run; whatever it started is removed.
    """
    file = deployment.file
    address = ServeAddress(file.server.host, file.server.port, file.server.route_prefix, file.server.proxies)
    _check_free(file.name, address)
    progress(f"the cluster has {described(alive_nodes())}")
    plans = plan_variants(deployment, cluster_from_ray())
    for name, plan in plans.items():
        progress(
            f"{name}: {plan.strategy}, {len(plan.replicas)} replicas, {len(plan.drafts)} drafts of their own"
        )
    variants = [served_variant(deployment, one, plans[one.name]) for one in file.variants]
    application = build_application(variants, serve_options(deployment))
    try:
        return _start(deployment, plans, application, address, progress)
    except NameTakenError:  # what bears the name is not of this start
        raise
    except BaseException:
        progress("removing what was started")
        with deferred_interrupts():
            take_down(file.name, drain_s=0)
        raise


def _start(
    deployment: LoadedDeployment,
    plans: Mapping[str, Plan],
    application: Any,
    address: ServeAddress,
    progress: Progress,
) -> Running:
    file = deployment.file
    host = head_address() if address.host in EVERY_INTERFACE else address.host
    url = f"http://{host}:{address.port}{address.route_prefix.rstrip('/')}"
    start_deployment(
        file.name,
        draft_specs(deployment, plans),
        _start_options(deployment),
        about=_about(deployment, plans, url),
        progress=progress,
    )
    run_application(application, file.name, address, file.deadlines.start_s, progress)
    return Running(file.name, url, _first_tokens(deployment, url, progress))


def _check_free(name: str, address: ServeAddress) -> None:
    if deployment_exists(name):
        raise NameTakenError(
            f"name: a deployment {name!r} runs on this cluster already; `foredraft down {name}` ends it"
        )
    check_address_free(name, address)


def _start_options(deployment: LoadedDeployment) -> StartOptions:
    from foredraft.scheduler.cluster.backoff import RestartPolicy

    file = deployment.file
    service = file.draft_service
    return StartOptions(
        group_deadline_s=file.deadlines.placement_s,
        worker_deadline_s=file.deadlines.start_s,
        detached=True,
        nodes_may_join=file.cluster.nodes_may_join,
        drain_s=file.deadlines.drain_s,
        policy=RestartPolicy(check_every_s=service.check_every_s, max_restarts=service.max_restarts),
    )


def _about(deployment: LoadedDeployment, plans: Mapping[str, Plan], url: str) -> dict[str, Any]:
    return {
        "url": url,
        "engine": deployment.file.engine,
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "drain_s": deployment.file.deadlines.drain_s,
        "variants": {
            one.name: {"weight": one.weight, "strategy": plans[one.name].strategy}
            for one in deployment.file.variants
        },
    }


def _first_tokens(deployment: LoadedDeployment, url: str, progress: Progress) -> dict[str, float]:
    keys = serve_options(deployment).api_keys
    seconds = {}
    for variant in deployment.file.variants:
        seconds[variant.name] = ask_first_token(
            url, variant.name, keys[0] if keys else None, deployment.file.deadlines.first_token_s
        )
        progress(f"{variant.name}: first token after {seconds[variant.name]:.2f} s")
    return seconds
