"""What is wanted: the sizes of target and draft, and how they shall be served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from foredraft.scheduler.hardware_model.language_models import ModelSize
from foredraft.scheduler.placement.errors import PlacementError
from foredraft.scheduler.placement.plan import Strategy
from foredraft.scheduler.placement.shape import NO_LABELS

GIB = 2**30
GPU_SHARES = (1.0, 0.5, 0.25, 0.125)
MODEL_PROPOSER = "draft"
"""The proposer that runs a model of its own; all others draft in the target's process."""


@dataclass(frozen=True)
class ModelNeed:
    """One model.

    Attributes:
        size: what its passes cost.
        weights_bytes: all of them, before they are divided among GPUs.
        kv_bytes_per_token: of its cache, likewise.
        tensor_parallel: GPUs that share each layer; always in one node.
        pipeline_parallel: stages, each with some of the layers; may be in different nodes.
        gpu_share: of a GPU, in time and memory; below 1 only for a model on one GPU.
        labels: that its nodes must have.

    Raises:
        PlacementError: a number out of range.
    """

    size: ModelSize
    weights_bytes: int
    kv_bytes_per_token: int
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    gpu_share: float = 1.0
    labels: Mapping[str, str] = field(default_factory=lambda: NO_LABELS)

    def __post_init__(self) -> None:
        if self.gpu_share not in GPU_SHARES:
            allowed = ", ".join(f"{share:g}" for share in GPU_SHARES)
            raise PlacementError(f"gpu_share: should be one of {allowed} (got {self.gpu_share:g})")
        if self.gpu_share < 1 and self.num_devices > 1:
            raise PlacementError(
                f"gpu_share: a model on {self.num_devices} GPUs takes whole ones (got {self.gpu_share:g})"
            )
        if self.pipeline_parallel > self.size.num_layers:
            raise PlacementError(
                f"pipeline_parallel: should be at most {self.size.num_layers}, the model's layers "
                f"(got {self.pipeline_parallel})"
            )

    @property
    def num_devices(self) -> int:
        """GPUs of one copy."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def weight_bytes(self) -> float:
        """Per weight."""
        return self.weights_bytes / self.size.num_params


@dataclass(frozen=True)
class Request:
    """What to plan for.

    Attributes:
        draft: of the proposer ``draft``; ``None`` with every other.
        proposer: what drafts.
        num_replicas: copies of the target.
        batch_size: requests that each serves at once; its cache must hold them.
        context: tokens of each request, prompt and output.
        acceptance: how likely the first, second, ... drafted token is accepted, if all before it were; no
            more are drafted.
        device: what the target runs on.
        exit_layer: of the proposer ``early_exit``; ``None`` = half of the layers.
        cpus_per_gpu: for the process of each worker on a GPU, and
        memory_bytes_per_gpu: RAM, likewise.
        cpus_per_worker: of a worker on CPUs; ``None`` = the number that is fastest in all.

    Raises:
        PlacementError: models, proposer and strategy that do not go together.
    """

    target: ModelNeed
    draft: ModelNeed | None
    proposer: str = MODEL_PROPOSER
    num_replicas: int = 1
    batch_size: int = 8
    context: int = 1024
    acceptance: Sequence[float] = (0.75, 0.7, 0.65, 0.65, 0.65, 0.65, 0.65, 0.65)
    strategy: Literal["auto"] | Strategy = "auto"
    device: Literal["gpu", "cpu"] = "gpu"
    exit_layer: int | None = None
    cpus_per_gpu: int = 1
    memory_bytes_per_gpu: int = 2 * GIB
    cpus_per_worker: int | None = None

    def __post_init__(self) -> None:
        self._check_proposer()
        if self.draft:
            self._check_draft(self.draft)
        if self.device == "cpu":
            self._check_cpu()

    def _check_proposer(self) -> None:
        if (self.draft is not None) != (self.proposer == MODEL_PROPOSER):
            given = "a draft model" if self.draft else "none"
            raise PlacementError(
                f"draft: the proposer {MODEL_PROPOSER} needs a draft model, others have none "
                f"(got proposer {self.proposer} and {given})"
            )
        if self.draft is None and self.strategy not in ("auto", "colocate"):
            raise PlacementError(
                f"strategy: should be auto or colocate, for the proposer {self.proposer} drafts in the "
                f"target's process (got {self.strategy})"
            )

    def _check_draft(self, draft: ModelNeed) -> None:
        if draft.pipeline_parallel > 1:
            raise PlacementError(
                "draft pipeline_parallel: should be 1, for a draft reads one token at a time "
                f"(got {draft.pipeline_parallel})"
            )
        wide = self.target.tensor_parallel
        if wide % draft.tensor_parallel:
            allowed = ", ".join(str(one) for one in range(1, wide + 1) if wide % one == 0)
            raise PlacementError(
                f"draft tensor_parallel: should be one of {allowed}, divisors of the target's "
                f"(got {draft.tensor_parallel})"
            )
        if draft.gpu_share > self.target.gpu_share:
            raise PlacementError(
                f"draft gpu_share: should be at most the target's, {self.target.gpu_share:g} "
                f"(got {draft.gpu_share:g})"
            )

    def _check_cpu(self) -> None:
        for need in (self.target, self.draft):
            if need and (need.num_devices > 1 or need.gpu_share < 1):
                raise PlacementError("device: a model on CPUs is one whole worker, not parallel or a share")
