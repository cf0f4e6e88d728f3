"""The variants of a deployment file as Ray Serve's application takes them."""

from __future__ import annotations

import json
import os
from typing import Any

from foredraft.integration.deploy.draft_workers import target_configs
from foredraft.integration.deploy.replica import DeployedReplica
from foredraft.integration.deploy.schema import LoadedDeployment
from foredraft.integration.deploy.schema_sections import VariantSection
from foredraft.integration.errors import UserError
from foredraft.integration.server.settings import ServerSettings
from foredraft.integration.vllm.replica import VllmReplica
from foredraft.scheduler.cluster.resources import bundle_resources
from foredraft.scheduler.placement.plan import Plan
from foredraft.scheduler.serve.options import ServeOptions
from foredraft.scheduler.serve.variant import Autoscaling, ReplicaFactory, Variant

NO_CPUS = 0.0
"""What the ingress takes in Ray's books: it forwards, and must not keep a replica from its room."""


def served_variant(deployment: LoadedDeployment, variant: VariantSection, plan: Plan) -> Variant:
    """One variant, with the resources that its plan gives each replica."""
    file, target = deployment.file, plan.replicas[0].target
    bundles = tuple(bundle_resources(bundle) for bundle in target.bundles)
    labels = tuple(dict(bundle.node_labels) for bundle in target.bundles)
    return Variant(
        name=variant.name,
        replica=_replica(deployment, variant, plan),
        weight=variant.weight,
        num_replicas=variant.replicas or file.replicas,
        autoscaling=Autoscaling(**file.autoscaling.model_dump()) if file.autoscaling else None,
        bundles=bundles,
        bundle_labels=labels,
        placement_strategy=target.strategy,
        ray_actor_options={
            "num_gpus": bundles[0].get("GPU", 0),
            "num_cpus": bundles[0].get("CPU", 0),
            "memory": bundles[0].get("memory"),
        },
        max_ongoing_requests=file.server.max_ongoing_requests,
        graceful_shutdown_timeout_s=max(file.deadlines.drain_s, 1.0),
    )


def _replica(deployment: LoadedDeployment, variant: VariantSection, plan: Plan) -> ReplicaFactory:
    if deployment.file.engine == "vllm":
        return VllmReplica(deployment.configs[variant.name], _vllm_flags(deployment, variant, plan))
    configs = target_configs(deployment.file.name, variant.name, deployment.config(variant.name), plan)
    return DeployedReplica(tuple(configs), _settings(deployment, variant))


def _vllm_flags(deployment: LoadedDeployment, variant: VariantSection, plan: Plan) -> tuple[str, ...]:
    options: dict[str, Any] = {"tensor_parallel_size": variant.tensor_parallel}
    if plan.replicas[0].target.gpu_memory_fraction > 0:
        options["gpu_memory_utilization"] = round(plan.replicas[0].target.gpu_memory_fraction, 3)
    if deployment.file.server.served_model_name is not None:
        options["served_model_name"] = deployment.file.server.served_model_name
    flags = []
    for name, value in (options | variant.vllm_options).items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            flags += [f"--{flag}", value if isinstance(value, str) else json.dumps(value)]
    return tuple(flags)


def serve_options(deployment: LoadedDeployment) -> ServeOptions:
    """The address in front of the variants.

    Raises:
        UserError: the variable that should hold the API keys is not set.
    """
    server = deployment.file.server
    return ServeOptions(
        api_keys=api_keys(server.api_key_env), max_body_bytes=server.max_body_bytes, ingress_cpus=NO_CPUS
    )


def api_keys(variable: str | None) -> tuple[str, ...]:
    """What is in an environment variable, separated by commas; none if no variable is named.

    Raises:
        UserError: it is not set, or holds none.
    """
    if variable is None:
        return ()
    keys = tuple(key.strip() for key in os.environ.get(variable, "").split(",") if key.strip())
    if not keys:
        raise UserError(f"server.api_key_env: the environment variable {variable} holds no key")
    if not all(key.isascii() for key in keys):
        raise UserError(f"server.api_key_env: the keys in {variable} should be ASCII texts")
    return keys


def _settings(deployment: LoadedDeployment, variant: VariantSection) -> ServerSettings:
    """Keys are asked for at the address in front; sampling defaults are those the file gives."""
    loaded, server = deployment.configs[variant.name], deployment.file.server
    given = [
        name.removeprefix("sampling.")
        for name, origin in loaded.origins.items()
        if name.startswith("sampling.") and origin != "default"
    ]
    return ServerSettings(
        (server.served_model_name or loaded.config.model,),
        proposer=loaded.config.proposer,
        sampling={name: getattr(loaded.config.sampling, name) for name in given},
        max_body_bytes=server.max_body_bytes,
        max_open_requests=server.max_open_requests,
    )
