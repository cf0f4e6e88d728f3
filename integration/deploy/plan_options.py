"""The flags of ``foredraft plan``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import typer

from foredraft.integration.errors import UserError

MODEL_HELP = (
    "A name of the table of models, weights=BYTES,kv=BYTES,layers=N (kv per token), a folder with a model"
)
MOST = 100_000
AUTO = "auto"

ClusterName = Annotated[
    str,
    typer.Option("--cluster", metavar="FILE|auto", help="YAML file, or auto: the Ray cluster that runs."),
]
Address = Annotated[
    str, typer.Option(help="With --cluster auto: auto, host:port or ray://host:port.", metavar="ADDRESS")
]
DeploymentFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Plan for what `foredraft deploy` would start from this file."),
]
Target = Annotated[
    str | None, typer.Option(metavar="MODEL", help=f"{MODEL_HELP}. Default: the configuration's model.")
]
Draft = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        help=f"{MODEL_HELP}, or what `foredraft train draft` wrote; means the proposer draft. Default: the "
        "configuration's, if its proposer is draft.",
    ),
]
Replicas = Annotated[int, typer.Option(help="Copies of the target.", metavar="NUMBER")]
StrategyName = Annotated[
    Literal["auto", "colocate", "split", "shared-draft", "cpu-draft"],
    typer.Option("--strategy", help="Where drafts run; auto = where most tokens/s are predicted."),
]
BatchSize = Annotated[
    int | None,
    typer.Option(help="Requests that each serves at once. Default: engine.max_num_seqs.", metavar="NUMBER"),
]
Context = Annotated[
    int | None,
    typer.Option(help="Tokens of each request. Default: engine.max_model_len, else 2048.", metavar="TOKENS"),
]
Acceptance = Annotated[
    str,
    typer.Option(
        metavar="LIST",
        help="How likely the first, second, ... token is accepted; the last holds for the rest.",
    ),
]
TensorParallel = Annotated[int, typer.Option(help="GPUs that share a layer of the target.", metavar="NUMBER")]
PipelineParallel = Annotated[int, typer.Option(help="Stages of the target's layers.", metavar="NUMBER")]
DraftTensorParallel = Annotated[int, typer.Option(help="The same of the draft.", metavar="NUMBER")]
WeightBytes = Annotated[float, typer.Option(help="Bytes per weight: 2 = 16 bit, 1 = 8 bit.")]
GpuShare = Annotated[float, typer.Option(help="Of a GPU for each target: 1, 0.5, 0.25 or 0.125.")]
DraftGpuShare = Annotated[float, typer.Option(help="The same for a draft of its own.")]
Device = Annotated[Literal["gpu", "cpu"], typer.Option("--on", help="What targets run on.")]
CpusPerGpu = Annotated[int, typer.Option(help="For the process on each GPU.", metavar="NUMBER")]
RamPerGpu = Annotated[float, typer.Option("--ram-per-gpu-gb", help="RAM, likewise.", metavar="GB")]
CpusPerWorker = Annotated[
    int | None,
    typer.Option(help="Of a worker on CPUs. Default: what is fastest in all.", metavar="NUMBER"),
]
TargetLabels = Annotated[
    list[str], typer.Option("--target-label", metavar="KEY=VALUE", help="Targets only go to such nodes.")
]
DraftLabels = Annotated[
    list[str], typer.Option("--draft-label", metavar="KEY=VALUE", help="Drafts only go to such nodes.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")]


@dataclass(frozen=True)
class PlanOptions:
    """What the command line says beside the configuration; the help of each is with its type.

    Raises:
        UserError: a number out of range.
    """

    cluster: ClusterName
    address: Address = AUTO
    deployment: DeploymentFile = None
    target: Target = None
    draft: Draft = None
    replicas: Replicas = 1
    strategy: StrategyName = "auto"
    batch_size: BatchSize = None
    context: Context = None
    acceptance: Acceptance = "0.75,0.7,0.65"
    tensor_parallel: TensorParallel = 1
    pipeline_parallel: PipelineParallel = 1
    draft_tensor_parallel: DraftTensorParallel = 1
    weight_bytes: WeightBytes = 2.0
    gpu_share: GpuShare = 1.0
    draft_gpu_share: DraftGpuShare = 1.0
    device: Device = "gpu"
    cpus_per_gpu: CpusPerGpu = 1
    ram_per_gpu_gb: RamPerGpu = 2.0
    cpus_per_worker: CpusPerWorker = None
    target_labels: TargetLabels = field(default_factory=list)
    draft_labels: DraftLabels = field(default_factory=list)
    as_json: AsJson = False

    def __post_init__(self) -> None:
        if self.cluster != AUTO and self.address != AUTO:
            raise UserError(f"--address: goes with --cluster auto, not with a file (got {self.address})")
        _check_range("--replicas", self.replicas, 1, MOST)
        _check_range("--batch-size", self.batch_size, 1, MOST)
        _check_range("--context", self.context, 1, 10_000_000)
        for name in ("tensor_parallel", "pipeline_parallel", "draft_tensor_parallel"):
            _check_range(f"--{name.replace('_', '-')}", getattr(self, name), 1, 1024)
        _check_range("--weight-bytes", self.weight_bytes, 0.25, 4)
        _check_range("--cpus-per-gpu", self.cpus_per_gpu, 1, 1024)
        _check_range("--ram-per-gpu-gb", self.ram_per_gpu_gb, 0.001, MOST)
        _check_range("--cpus-per-worker", self.cpus_per_worker, 1, 1024)


def label_mapping(option: str, entries: Sequence[str]) -> dict[str, str]:
    """KEY=VALUE by key.

    Raises:
        UserError: one is not of this form, or given twice.
    """
    labels: dict[str, str] = {}
    for entry in entries:
        key, equals, value = entry.partition("=")
        if not key or not equals or key in labels:
            raise UserError(f"{option}: needs KEY=VALUE, each key once (got {entry!r})")
        labels[key] = value
    return labels


def _check_range(option: str, value: float | None, low: float, high: float) -> None:
    if value is not None and not low <= value <= high:
        raise UserError(f"{option}: should be from {low:g} to {high:g} (got {value:g})")
