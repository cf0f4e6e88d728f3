"""The ways to lay out replicas: every strategy in its variants, the same for all replicas of a plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import get_args

from foredraft.scheduler.placement.errors import PlacementError
from foredraft.scheduler.placement.models import ModelNeed, Request
from foredraft.scheduler.placement.plan import Strategy

STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
SHARED_BY = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
WORKER_CPUS = (64, 32, 16, 8, 4, 2, 1)


@dataclass(frozen=True)
class Layout:
    """One way.

    A *unit* is the smallest share of a GPU that a worker takes; of a target on CPUs, one worker's CPUs.

    Attributes:
        num_targets: replicas that share one draft; 0 = it is in the target's process.
        same_node: every draft is on the node of its targets.
        stages_apart: pipeline stages may be on different nodes.
        worker_cpus: of each worker that runs on CPUs; 0 = none does.
    """

    strategy: Strategy
    request: Request
    num_targets: int = 0
    same_node: bool = False
    stages_apart: bool = False
    worker_cpus: int = 0

    @property
    def guest(self) -> ModelNeed | None:
        """The draft model in the target's process."""
        return None if self.num_targets else self.request.draft

    @property
    def draft(self) -> ModelNeed | None:
        """The draft model in a process of its own."""
        return self.request.draft if self.num_targets else None

    @property
    def units_per_gpu(self) -> int:
        """How finely GPUs are cut."""
        shares = [need.gpu_share for need in (self.request.target, self.draft) if need]
        return round(1 / min(shares))

    @property
    def num_drafts(self) -> int:
        """Workers that draft."""
        return ceil(self.request.num_replicas / self.num_targets) if self.num_targets else 0

    @property
    def blocks_per_target(self) -> int:
        """Parts of a target that are in one node each."""
        return self.request.target.pipeline_parallel if self.stages_apart else 1

    @property
    def target_block(self) -> int:
        """Units of such a part."""
        target = self.request.target
        return self._units(target) * target.num_devices // self.blocks_per_target

    @property
    def draft_block(self) -> int:
        """Units of a draft, all in one node; 0 = it takes CPUs only."""
        if self.draft is None or self.draft_on_cpus:
            return 0
        return self._units(self.draft) * self.draft.tensor_parallel

    @property
    def draft_on_cpus(self) -> bool:
        """Beside a target on GPUs."""
        return self.strategy == "cpu-draft" and self.request.device == "gpu"

    @property
    def num_gpus(self) -> float:
        """That all workers take."""
        if self.request.device == "cpu":
            return 0
        blocks = self.request.num_replicas * self.blocks_per_target * self.target_block
        return (blocks + self.num_drafts * self.draft_block) / self.units_per_gpu

    def _units(self, need: ModelNeed) -> int:
        return round(need.gpu_share * self.units_per_gpu)


def strategies(request: Request) -> tuple[Strategy, ...]:
    """Those that are considered.

    Raises:
        PlacementError: the one that was asked for makes no sense here.
    """
    if request.strategy == "auto":
        return STRATEGIES if request.draft else ("colocate",)
    reason = why_pointless(request, request.strategy)
    if reason:
        raise PlacementError(f"strategy: {request.strategy}: {reason}")
    return (request.strategy,)


def why_pointless(request: Request, strategy: Strategy) -> str | None:
    """Why a strategy is not even looked at; ``None`` = it is."""
    if strategy == "shared-draft" and request.num_replicas == 1:
        return "one replica has nobody to share a draft with"
    if strategy == "cpu-draft" and request.device == "cpu":
        return "the target is on CPUs too: that is split"
    return None


def layouts(request: Request, strategy: Strategy) -> Iterator[Layout]:
    """Every way of a strategy, the simplest first."""
    on_cpus = request.device == "cpu" or strategy == "cpu-draft"
    given = request.cpus_per_worker
    for cpus in ((given,) if given else WORKER_CPUS) if on_cpus else (0,):
        for num_targets in _sharing(request, strategy):
            for same_node in (True, False) if strategy in ("split", "shared-draft") else (True,):
                for stages_apart in (False, True) if request.target.pipeline_parallel > 1 else (False,):
                    if not (num_targets and same_node and stages_apart):
                        yield Layout(strategy, request, num_targets, same_node, stages_apart, cpus)


def _sharing(request: Request, strategy: Strategy) -> list[int]:
    if strategy == "colocate":
        return [0]
    if strategy != "shared-draft":
        return [1]
    replicas = request.num_replicas
    return sorted({min(number, replicas) for number in SHARED_BY})
