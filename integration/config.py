"""The configuration: one typed schema behind YAML files, command-line flags and Python."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from importlib.metadata import entry_points
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from foredraft.integration.config_sections import (
    STRICT,
    DraftOptions,
    EarlyExitOptions,
    EngineOptions,
    NgramOptions,
    SamplingDefaults,
)
from foredraft.integration.errors import UserError
from foredraft.integration.sampling_params import describe

BUILTIN_PROPOSERS = ("none", "ngram", "draft", "early_exit")
AUTO = "auto"
SINGLE = ("none", AUTO)
"""What stands alone, never in a list."""

SHARING = ("ngram", "draft", "early_exit")
"""What ``proposer: auto`` stands for."""

VLLM_PROPOSERS = ("vllm:ngram", "vllm:suffix", "vllm:draft_model")
"""vLLM's own methods, to compare with: ``generate`` and ``compare`` take them with ``--engine vllm``."""

MAX_DRAFT_TOKENS = 32
PROPOSER_GROUP = "foredraft.proposers"


class Config(BaseModel):
    """Everything a run is told.

    Raises:
        UserError: from the constructor, naming each bad field, its value and what is allowed.
    """

    model_config = STRICT

    model: str = Field(
        "smollm2-135m",
        min_length=1,
        description="smollm2-135m (built in), a folder, a .gguf file or a Hugging Face id",
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="number format of the model; auto = the fastest the device computes in"
    )
    device: str = Field("auto", description="auto, cpu, cuda or cuda:N; auto = a GPU if there is one")
    proposer: str = Field(
        "ngram",
        description="what drafts: none, ngram, draft, early_exit or the name of an installed plugin; "
        "several, such as ngram,draft, share the requests; auto = those of ngram, draft and early_exit "
        "that can draft for the model",
    )
    num_draft_tokens: int | str | None = Field(
        None,
        description="tokens drafted per step at most, 1 to 32; auto = chosen for each request and step by "
        "what it brings and costs, 0 included, up to 16 (8 where a model drafts), as always where several "
        "proposers share (a number is the most then); null = a number that suits the proposer",
    )
    verification_rule: Literal["block", "token"] = Field(
        "block",
        description="how drawn drafts are judged, both exact; block never accepts less on average",
    )
    ngram: NgramOptions = Field(NgramOptions(), description="options of the proposer ngram")
    draft: DraftOptions = Field(DraftOptions(), description="options of the proposer draft")
    early_exit: EarlyExitOptions = Field(EarlyExitOptions(), description="options of the proposer early_exit")
    sampling: SamplingDefaults = Field(
        SamplingDefaults(), description="sampling of requests that do not say otherwise"
    )
    engine: EngineOptions = Field(EngineOptions(), description="sizes and seeds of the engine")

    def __init__(self, /, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise UserError(describe(error, type(self))) from error

    @field_validator("device")
    @classmethod
    def _known_device(cls, value: str) -> str:
        if not re.fullmatch(r"auto|cpu|cuda(:[0-9]{1,3})?", value):
            raise ValueError("should be auto, cpu, cuda or cuda:N")
        return value

    @field_validator("proposer", mode="before")
    @classmethod
    def _known_proposers(cls, value: Any) -> Any:
        """A list becomes a text with commas."""
        names = value.split(",") if isinstance(value, str) else value
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise ValueError("should be a name, or a list of names")
        names = [name.strip() for name in names]
        for name in names:
            _check_proposer(name, alone=len(names) == 1)
        if len(set(names)) < len(names):
            raise ValueError("should name each proposer once")
        return ",".join(names)

    @field_validator("num_draft_tokens", mode="plain")
    @classmethod
    def _number_or_auto(cls, value: Any) -> int | str | None:
        whole = type(value) is int and 1 <= value <= MAX_DRAFT_TOKENS
        if not (whole or value is None or value == AUTO):
            raise ValueError(f"should be auto or a whole number from 1 to {MAX_DRAFT_TOKENS}, or null")
        return value  # type: ignore[no-any-return]

    @model_validator(mode="after")
    def _dtype_fits_device(self) -> Config:
        if self.device == "cpu" and self.dtype == "float16":
            raise ValueError("dtype: float16 does not run on device cpu; use float32, bfloat16 or auto")
        return self


def _check_proposer(name: str, *, alone: bool) -> None:
    allowed = allowed_proposers() if alone else [one for one in allowed_proposers() if one not in SINGLE]
    if name not in allowed and not (alone and name in VLLM_PROPOSERS):
        near = get_close_matches(name, allowed, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        what = "should be one of" if alone else "in a list, should be of"
        which = "" if alone else f", not {name!r}"
        raise ValueError(f"{what} {', '.join(allowed)}{which}{hint}")


def proposer_names(config: Config) -> tuple[str, ...]:
    """The proposers of a configuration; those that ``auto`` stands for, whether they can draft or not."""
    return SHARING if config.proposer == AUTO else tuple(config.proposer.split(","))


def allowed_proposers() -> tuple[str, ...]:
    """The built-in proposers and those that installed packages offer; read without importing torch."""
    plugins = {point.name for point in entry_points(group=PROPOSER_GROUP)} - {*BUILTIN_PROPOSERS, AUTO}
    return (*BUILTIN_PROPOSERS, *sorted(plugins), AUTO)


def replaced(config: Config, **values: Any) -> Config:
    """A copy with other values, validated like any configuration."""
    return Config(**(config.model_dump() | values))


def fixed_draft_tokens(config: Config) -> int | None:
    """The configured number of draft tokens; ``None`` where it is left open, or ``auto``."""
    number = config.num_draft_tokens
    return number if isinstance(number, int) else None


def section_model(name: str) -> type[BaseModel] | None:
    """The schema of a section of ``Config``, ``None`` if ``name`` is no section."""
    field = Config.model_fields.get(name)
    annotation = field.annotation if field else None
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def leaf_values(config: Config) -> Iterator[tuple[str, Any]]:
    """Every option as (dotted name, value), in the order of the schema."""
    for name in Config.model_fields:
        value = getattr(config, name)
        if isinstance(value, BaseModel):
            yield from ((f"{name}.{inner}", getattr(value, inner)) for inner in type(value).model_fields)
        else:
            yield name, value
