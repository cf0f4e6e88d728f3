"""The sections of a deployment file. The descriptions are the comments of configs/ray-*.yaml and the docs."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field, model_validator

from foredraft.integration.config_sections import STRICT

Seconds = float


class ClusterSection(BaseModel):
    """Which Ray cluster, and what of it."""

    model_config = STRICT

    address: str = Field(
        default="local",
        description="local = a Ray on this machine that lives as long as the command; auto = RAY_ADDRESS, or "
        "the only one with a node here; host:port = one that this machine is a node of; ray://host:port = "
        "Ray Client",
    )
    num_cpus: int | None = Field(
        default=None, ge=1, le=4096, description="of a local one; null = what Ray finds"
    )
    num_gpus: int | None = Field(
        default=None, ge=0, le=64, description="of a local one; null = what Ray finds"
    )
    temp_dir: str | None = Field(
        default=None, min_length=1, description="of a local one; null = Ray's default"
    )
    nodes_may_join: bool = Field(
        default=False, description="an autoscaler may add nodes, so what does not fit now is waited for"
    )

    @model_validator(mode="after")
    def _sizes_are_of_a_local_one(self) -> ClusterSection:
        for name in ("num_cpus", "num_gpus", "temp_dir"):
            if getattr(self, name) is not None and self.address != "local":
                raise ValueError(f"{name} is for address local; a cluster that runs has what it has")
        return self


class AutoscalingSection(BaseModel):
    """Replicas by load, as Ray Serve counts it."""

    model_config = STRICT

    min_replicas: int = Field(default=1, ge=1, le=1000, description="always there")
    max_replicas: int = Field(
        default=4, ge=1, le=1000, description="room for so many is checked at the start"
    )
    target_ongoing_requests: float = Field(
        default=8.0, gt=0, le=10_000, description="per replica, on average"
    )
    upscale_delay_s: Seconds = Field(default=10.0, ge=0, le=3600, description="load must stay high so long")
    downscale_delay_s: Seconds = Field(
        default=120.0, ge=0, le=86_400, description="load must stay low so long"
    )

    @model_validator(mode="after")
    def _ordered(self) -> AutoscalingSection:
        if self.min_replicas > self.max_replicas:
            raise ValueError(
                f"min_replicas ({self.min_replicas}) must not exceed max_replicas ({self.max_replicas})"
            )
        return self


class VariantSection(BaseModel):
    """One configuration behind the address."""

    model_config = STRICT

    name: str = Field(
        default="default", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$", description="in metrics and headers"
    )
    weight: float = Field(
        default=1.0, ge=0, le=1e6, description="share of the keys; 0 = only who names it gets it"
    )
    config: dict[str, Any] | str = Field(
        default_factory=dict,
        description="a foredraft configuration, here or the path of its file (from this file's folder)",
    )
    replicas: int | None = Field(default=None, ge=1, le=1000, description="null = as the file says for all")
    strategy: Literal["auto", "colocate", "split", "shared-draft", "cpu-draft"] | None = Field(
        default=None, description="null = as the file says for all"
    )
    tensor_parallel: int = Field(
        default=1, ge=1, le=64, description="GPUs that share a layer; engine vllm only"
    )
    gpu_share: float = Field(
        default=1.0, gt=0, le=1, description="of a GPU for each target: 1, 0.5, 0.25 or 0.125"
    )
    cpus_per_worker: int | None = Field(
        default=None, ge=1, le=1024, description="of a target or draft on CPUs; null = what is fastest in all"
    )
    vllm_options: dict[str, Any] = Field(default_factory=dict, description="more for vLLM's own engine")


class DraftServiceSection(BaseModel):
    """Drafts in actors of their own. How long targets wait for them is said in each configuration."""

    model_config = STRICT

    most_waiting: int = Field(
        default=64, ge=1, le=112, description="targets that may wait; more hear it is busy"
    )
    batch_tokens: int = Field(default=512, ge=1, le=65_536, description="tokens of one batch across targets")
    gather_ms: float = Field(
        default=1.0, ge=0, le=1000, description="wait so long for others to share the batch"
    )
    lease_s: Seconds = Field(
        default=60.0, gt=0, le=3600, description="a target silent for so long is forgotten"
    )
    check_every_s: Seconds = Field(
        default=2.0, gt=0, le=600, description="how often each draft is asked to draft"
    )
    max_restarts: int = Field(default=8, ge=0, le=1000, description="in a row, before a draft is given up")


class ServerSection(BaseModel):
    """The address clients use."""

    model_config = STRICT

    host: str = Field(default="127.0.0.1", min_length=1, description="0.0.0.0 = every interface")
    port: int = Field(
        default=8000, ge=1, le=65_535, description="one for all deployments of a cluster: Ray Serve's"
    )
    proxies: Literal["head", "every-node"] = Field(
        default="head", description="who listens: the cluster's head alone, or every node that has replicas"
    )
    route_prefix: str = Field(default="/", pattern=r"^/([A-Za-z0-9_.-]+)?$", description="of all its paths")
    api_key_env: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="environment variable of `foredraft deploy` with the API keys, separated by commas; "
        "null = everyone may ask",
    )
    served_model_name: str | None = Field(
        default=None, min_length=1, description="null = the configuration's model"
    )
    max_body_bytes: int = Field(default=8 * 2**20, ge=1024, le=2**30, description="of a request")
    max_open_requests: int = Field(default=1024, ge=1, le=1_000_000, description="per replica; more get 429")
    max_ongoing_requests: int = Field(default=64, ge=1, le=100_000, description="sent to a replica at once")


class DeadlineSection(BaseModel):
    """How long each part of a deployment may take, in seconds. What takes longer is named, and removed."""

    model_config = STRICT

    connect_s: Seconds = Field(default=20.0, gt=0, le=600, description="until the cluster answers")
    placement_s: Seconds = Field(default=60.0, gt=0, le=86_400, description="until there is room")
    start_s: Seconds = Field(
        default=600.0, gt=0, le=86_400, description="until all drafts, then all replicas, run"
    )
    first_token_s: Seconds = Field(default=120.0, gt=0, le=3600, description="for the first real request")
    drain_s: Seconds = Field(default=30.0, ge=0, le=3600, description="for open requests when it ends")
