"""The deployment file: what ``foredraft deploy`` is told."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from foredraft.integration.config import Config
from foredraft.integration.config_sections import STRICT
from foredraft.integration.config_sources import LoadedConfig, load_config
from foredraft.integration.config_text import read_mapping
from foredraft.integration.deploy.schema_sections import (
    AutoscalingSection,
    ClusterSection,
    DeadlineSection,
    DraftServiceSection,
    ServerSection,
    VariantSection,
)
from foredraft.integration.errors import UserError
from foredraft.integration.paths import user_path
from foredraft.integration.sampling_params import describe
from foredraft.scheduler.cluster.address import checked_address
from foredraft.scheduler.cluster.errors import ClusterError
from foredraft.scheduler.cluster.names import checked_name


class DeploymentFile(BaseModel):
    """One deployment: variants behind one address, and their drafts."""

    model_config = STRICT

    name: str = Field(description="of the deployment, one on its cluster")
    engine: Literal["embedded", "vllm"] = Field("embedded", description="what runs the targets")
    strategy: Literal["auto", "colocate", "split", "shared-draft", "cpu-draft"] = Field(
        "auto", description="where drafts run; auto = where most tokens/s are predicted"
    )
    replicas: int = Field(1, ge=1, le=1000, description="of each variant")
    cluster: ClusterSection = Field(ClusterSection(), description="which Ray cluster")
    variants: list[VariantSection] = Field([VariantSection()], min_length=1, description="behind the address")
    autoscaling: AutoscalingSection | None = Field(None, description="null = a fixed number of replicas")
    draft_service: DraftServiceSection = Field(
        DraftServiceSection(), description="drafts in their own actors"
    )
    server: ServerSection = Field(ServerSection(), description="the address")
    deadlines: DeadlineSection = Field(DeadlineSection(), description="in seconds")

    @field_validator("name")
    @classmethod
    def _name_fits(cls, value: str) -> str:
        return _said_by_pydantic(checked_name, value, "name: ")

    @field_validator("cluster")
    @classmethod
    def _address_fits(cls, value: ClusterSection) -> ClusterSection:
        _said_by_pydantic(checked_address, value.address, "")
        return value

    @model_validator(mode="after")
    def _variants_fit(self) -> DeploymentFile:
        names = [variant.name for variant in self.variants]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"variants: the name {twice[0]} is given twice")
        if not any(variant.weight for variant in self.variants):
            raise ValueError("variants: one at least needs a weight above 0")
        for variant in self.variants:
            self._check_engine(variant)
        return self

    def _check_engine(self, variant: VariantSection) -> None:
        where = f"variants: {variant.name}"
        if self.engine == "embedded" and variant.tensor_parallel > 1:
            raise ValueError(f"{where}: tensor_parallel needs engine vllm; the embedded one has one device")
        if self.engine == "embedded" and variant.vllm_options:
            raise ValueError(f"{where}: vllm_options needs engine vllm")
        strategy = variant.strategy or self.strategy
        if self.engine == "vllm" and strategy not in ("auto", "colocate"):
            raise ValueError(
                f"{where}: engine vllm drafts beside its target: strategy colocate (got {strategy})"
            )


@dataclass(frozen=True)
class LoadedDeployment:
    """A deployment file with the configuration of each variant, checked."""

    file: DeploymentFile
    configs: Mapping[str, LoadedConfig]

    def config(self, variant: str) -> Config:
        """Of one variant."""
        return self.configs[variant].config


def load_deployment(path: Path) -> LoadedDeployment:
    """Read and check all of it, the files of the variants too.

    Raises:
        UserError: no such file, or a value that is refused; names the field, the value and what is allowed.
    """
    values = read_mapping(path)
    try:
        file = DeploymentFile.model_validate(values)
    except ValidationError as error:
        raise UserError(f"file {path.name}: {describe(error, DeploymentFile)}") from None
    return LoadedDeployment(file, {one.name: _checked_config(one, path.parent) for one in file.variants})


def _config(variant: VariantSection, folder: Path) -> LoadedConfig:
    option = f"variants: {variant.name}: config"
    try:
        if isinstance(variant.config, str):
            return load_config(folder / user_path(variant.config, option), {})
        return load_config(None, variant.config)
    except UserError as error:
        # Inline values are read like flags, and would be called that.
        raise UserError(f"{option}: {re.sub('^flag [^ ]+: ', '', str(error), flags=re.MULTILINE)}") from None


def _checked_config(variant: VariantSection, folder: Path) -> LoadedConfig:
    loaded = _config(variant, folder)
    if loaded.config.draft.server is not None:
        raise UserError(
            f"variants: {variant.name}: config: draft.server: is what the deployment itself sets "
            f"(got {loaded.config.draft.server!r})"
        )
    return loaded


def _said_by_pydantic(check: Any, value: str, prefix: str) -> str:
    try:
        checked: str = check(value)
    except ClusterError as error:
        raise ValueError(str(error).removeprefix(prefix)) from None
    return checked
