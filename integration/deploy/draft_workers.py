"""The drafts of a deployment: workers for the supervisor, and who asks which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from foredraft.integration.config import Config, replaced
from foredraft.integration.config_sources import with_values
from foredraft.integration.deploy.schema import LoadedDeployment
from foredraft.integration.draft_service.hosting import HostedFactory
from foredraft.scheduler.cluster.names import namespace_of
from foredraft.scheduler.cluster.worker import WorkerSpec
from foredraft.scheduler.draft_server.actor import MOST_CALLS
from foredraft.scheduler.draft_server.options import DraftServerOptions
from foredraft.scheduler.placement.plan import Plan

ACTOR = "foredraft.scheduler.draft_server.actor:DraftActor"
MOST_ROWS = 256
"""What ``engine.max_num_seqs`` may be."""


def draft_specs(deployment: LoadedDeployment, plans: Mapping[str, Plan]) -> list[WorkerSpec]:
    """One worker for each draft of each plan."""
    section = deployment.file.draft_service
    options = DraftServerOptions(
        section.most_waiting, section.batch_tokens, section.gather_ms, section.lease_s
    )
    return [
        WorkerSpec(
            _draft_name(variant, index),
            "draft",
            ACTOR,
            draft,
            {"factory": HostedFactory(_hosted(deployment.config(variant), plan, index)), "options": options},
            max_concurrency=MOST_CALLS,
        )
        for variant, plan in plans.items()
        for index, draft in enumerate(plan.drafts)
    ]


def target_configs(deployment: str, variant: str, config: Config, plan: Plan) -> Sequence[Config]:
    """What each replica of a variant is told: its configuration, and the draft server that it asks."""
    servers = [
        None if replica.draft is None else f"{namespace_of(deployment)}/{_draft_name(variant, replica.draft)}"
        for replica in plan.replicas
    ]
    return [config if server is None else with_values(config, {"draft.server": server}) for server in servers]


def _hosted(config: Config, plan: Plan, index: int) -> Config:
    """A draft server's own: rows for all requests of its targets, on what the plan gives it."""
    num_targets = sum(replica.draft == index for replica in plan.replicas)
    rows = min(MOST_ROWS, config.engine.max_num_seqs * max(1, num_targets))
    hosted = with_values(config, {"engine.max_num_seqs": rows})
    on_gpu = plan.drafts[index].bundles[0].gpus > 0
    return hosted if on_gpu else replaced(hosted, device="cpu")


def _draft_name(variant: str, index: int) -> str:
    return f"draft-{variant}-{index}"
