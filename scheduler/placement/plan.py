"""What a plan says: where each worker goes, what it may take, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Strategy = Literal["colocate", "split", "shared-draft", "cpu-draft"]
"""``colocate``: the draft in its target's process, or a proposer that needs no model. ``split``: each target
has a draft of its own, elsewhere. ``shared-draft``: several targets share one. ``cpu-draft``: on CPUs."""

GroupStrategy = Literal["PACK", "STRICT_PACK", "SPREAD", "STRICT_SPREAD"]
Role = Literal["target", "draft"]


@dataclass(frozen=True)
class Bundle:
    """What one pipeline stage takes: a bundle of a Ray placement group, so never across nodes.

    Attributes:
        gpus: whole ones, or a share of one such as 0.5; 0 = it runs on CPUs.
        memory_bytes: of the node's RAM.
        node: the node it was planned for; where the cluster was read from Ray, Ray's id of it.
        node_labels: that the node must have.
    """

    gpus: float
    cpus: float
    memory_bytes: int
    node: str
    node_labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class MemorySplit:
    """Bytes on each device of a worker: of each GPU, or of the RAM of a worker on CPUs.

    Attributes:
        kv_bytes: of the worker's own model: all that is left, which is at least what was asked for.
        draft_bytes: weights and cache of a draft in the same process.
        reserve_bytes: for activations, the device's context and fragmentation.
    """

    weights_bytes: int
    kv_bytes: int
    draft_bytes: int
    reserve_bytes: int

    @property
    def total_bytes(self) -> int:
        """All of them together."""
        return self.weights_bytes + self.kv_bytes + self.draft_bytes + self.reserve_bytes


@dataclass(frozen=True)
class WorkerPlan:
    """One target or one draft.

    Attributes:
        bundles: one per pipeline stage; each holds all GPUs that share its layers.
        strategy: of the placement group.
        gpu_memory_fraction: share of a whole GPU's memory it may take; 0 on CPUs.
        memory: of each of its devices.
    """

    role: Role
    bundles: tuple[Bundle, ...]
    strategy: GroupStrategy
    gpu_memory_fraction: float
    memory: MemorySplit


@dataclass(frozen=True)
class ReplicaPlan:
    """One replica.

    Attributes:
        draft: index into ``Plan.drafts``; ``None`` = drafts in the target's own process, or not at all.
    """

    target: WorkerPlan
    draft: int | None


@dataclass(frozen=True)
class Rejected:
    """A strategy that was not chosen.

    Attributes:
        tokens_per_s: of its best plan; ``None`` = it has none.
    """

    strategy: Strategy
    reason: str
    tokens_per_s: float | None


@dataclass(frozen=True)
class Plan:
    """Where everything goes.

    Attributes:
        tokens_per_s: predicted, of all replicas together.
        num_draft_tokens: drafted per step at best, by the same prediction; 0 = drafting does not pay.
        reasons: one readable line per choice.
        rejected: the other strategies that were considered.
    """

    strategy: Strategy
    replicas: tuple[ReplicaPlan, ...]
    drafts: tuple[WorkerPlan, ...]
    tokens_per_s: float
    num_draft_tokens: int
    reasons: tuple[str, ...]
    rejected: tuple[Rejected, ...]
