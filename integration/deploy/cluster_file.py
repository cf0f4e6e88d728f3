"""A cluster written down as YAML, to plan for one that is not there yet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from foredraft.integration.config_sections import STRICT
from foredraft.integration.config_text import read_mapping
from foredraft.integration.errors import UserError
from foredraft.integration.sampling_params import describe
from foredraft.scheduler.hardware_model.hardware import GPUS, Gpu
from foredraft.scheduler.placement.errors import PlacementError
from foredraft.scheduler.placement.shape import NETWORK_ROUND_TRIP_S, Cluster, Node

MAX_NODES = 100_000


class NodeEntry(BaseModel):
    """Nodes alike."""

    model_config = STRICT

    name: str = Field(min_length=1, description="of the node; of several alike NAME-0, NAME-1 and so on")
    count: int = Field(1, ge=1, le=MAX_NODES, description="how many of them there are")
    gpus: int = Field(0, ge=0, le=1024, description="GPUs of each, all of one kind")
    gpu: str | None = Field(None, description="their kind, by the name of the hardware table")
    gpu_memory_gb: float | None = Field(None, gt=0, le=100_000, description="null = as the table says")
    cpus: int = Field(ge=0, le=100_000, description="CPUs of each")
    memory_gb: float = Field(ge=0, le=1_000_000, description="RAM of each")
    labels: dict[str, str] = Field({}, description="as Ray has them")

    @field_validator("gpu")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        if value is not None and value not in GPUS:
            raise ValueError(f"should be one of {', '.join(GPUS)}")
        return value

    @model_validator(mode="after")
    def _gpus_have_a_kind(self) -> NodeEntry:
        if self.gpus and self.gpu is None:
            raise ValueError(f"gpu must say which kind the {self.gpus} GPUs are, one of {', '.join(GPUS)}")
        return self

    def nodes(self) -> Iterator[Node]:
        """One by one."""
        names = [self.name] if self.count == 1 else [f"{self.name}-{number}" for number in range(self.count)]
        ram = int(self.memory_gb * 1e9)
        for name in names:
            yield Node(name, self.gpus, self._gpu(), self.cpus, ram, self.gpu or "", dict(self.labels))

    def _gpu(self) -> Gpu | None:
        if self.gpu is None:
            return None
        known = GPUS[self.gpu]
        return replace(known, memory=self.gpu_memory_gb * 1e9) if self.gpu_memory_gb else known


class ClusterFile(BaseModel):
    """The whole file."""

    model_config = STRICT

    network_round_trip_us: float = Field(
        NETWORK_ROUND_TRIP_S * 1e6, ge=0, le=1e6, description="microseconds between two nodes and back"
    )
    nodes: list[NodeEntry] = Field(min_length=1, description="the nodes, nodes alike in one entry")


def read_cluster(path: Path) -> Cluster:
    """The cluster of a file.

    Raises:
        UserError: no such file, or a value in it that is refused.
    """
    try:
        file = ClusterFile.model_validate(read_mapping(path))
        nodes = tuple(node for entry in file.nodes for node in entry.nodes())
        return Cluster(nodes, file.network_round_trip_us * 1e-6)
    except ValidationError as error:
        raise UserError(f"file {path.name}: {describe(error, ClusterFile)}") from None
    except PlacementError as error:
        raise UserError(f"file {path.name}: {error}") from None
