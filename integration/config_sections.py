"""The sections of the configuration: options that belong to one part each.

The description texts are the help of the flags and the comments of ``configs/reference.yaml``.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from foredraft.integration.sampling_params import SamplingParams

# Strict: `true` is not the number 1 and "5" is not 5, whichever way a value comes in.
DEVICE_PATTERN = r"^(auto|cpu|cuda(:[0-9]{1,3})?)$"
STRICT = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


OWN_HEAD = "own"


class NgramOptions(BaseModel):
    """`proposer: ngram`: drafts what followed the same words earlier in the text."""

    model_config = STRICT

    min_n: int = Field(
        default=1,
        ge=1,
        le=32,
        description="shortest run of tokens that counts as a repeat; lower drafts more often, and worse",
    )
    max_n: int = Field(
        default=5, ge=1, le=32, description="longest run of tokens to look for; the longest match wins"
    )
    draft_growth: int = Field(
        default=2,
        ge=0,
        le=32,
        description="a match of n tokens drafts at most 1 + draft_growth * (n - 1); 0 = no such limit",
    )
    shared_store_tokens: int = Field(
        default=0,
        ge=0,
        le=100_000_000,
        description="tokens of finished requests to remember for later ones; 0 = none",
    )

    @model_validator(mode="after")
    def _ordered(self) -> NgramOptions:
        if self.min_n > self.max_n:
            raise ValueError(f"min_n ({self.min_n}) must not exceed max_n ({self.max_n})")
        return self


class DraftOptions(BaseModel):
    """`proposer: draft`: a smaller model drafts."""

    model_config = STRICT

    model: str | None = Field(
        default=None,
        min_length=1,
        description="what drafts: a small model, named like `model`, or what `foredraft train draft` wrote; "
        "null = the one that comes with foredraft for the built-in model",
    )
    device: str | None = Field(
        default=None,
        pattern=DEVICE_PATTERN,
        description="where the draft runs: auto, cpu, cuda or cuda:N; null = beside the model",
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] | None = Field(
        default=None,
        description="number format of the draft; changes its speed, never the output; null = the model's",
    )
    min_confidence: float = Field(
        default=0.0,
        ge=0.0,
        lt=1.0,
        description="stop drafting where the draft gives its likeliest token less than this; 0 = never",
    )
    server: str | None = Field(
        default=None,
        pattern=r"^([^/\s]+/)?[^/\s]+$",
        description="draft server to ask, the name of its Ray actor or namespace/name; it hosts what `model` "
        "names; null = the draft runs in this process",
    )
    server_address: str | None = Field(
        default=None,
        min_length=1,
        description="Ray cluster of the draft server; null = the one of this process, or of RAY_ADDRESS",
    )
    server_deadline_ms: float = Field(
        default=50.0,
        gt=0.0,
        le=60_000.0,
        description="how long a step waits for the draft server before it goes on without a draft",
    )
    draft_ahead: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="whether the draft server drafts on while the model verifies; auto = where it pays",
    )


class EarlyExitOptions(BaseModel):
    """`proposer: early_exit`: the first layers of the model itself draft."""

    model_config = STRICT

    head: str | None = Field(
        default=None,
        min_length=1,
        description="what turns an early state into tokens: what `foredraft train exit` wrote, or own = the "
        "model's own norm and head; null = the one that comes with foredraft for the built-in model",
    )
    exit_layer: int | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="draft after this many layers; null = the layer that the trained head was made for",
    )
    min_confidence: float = Field(
        default=0.0,
        ge=0.0,
        lt=1.0,
        description="stop drafting where the head gives its likeliest token less than this; 0 = never",
    )

    @model_validator(mode="after")
    def _own_head_has_a_layer(self) -> EarlyExitOptions:
        if self.head == OWN_HEAD and self.exit_layer is None:
            raise ValueError(
                f"exit_layer must be given with the head {OWN_HEAD!r}, 1 up to the model's number of layers"
            )
        return self


class SamplingDefaults(SamplingParams):
    """Sampling of requests that do not say otherwise. Greedy, so that runs can be compared.

    Raises:
        ValidationError: from the constructor, so that the faults keep their place in ``Config``.
    """

    model_config = STRICT

    temperature: float = Field(
        0.0, ge=0.0, le=100.0, description="0 = always the likeliest token; higher values vary the text more"
    )
    max_tokens: int = Field(256, ge=1, description="tokens to generate at most; cut to the room left")

    def __init__(self, /, **values: Any) -> None:
        BaseModel.__init__(self, **values)

    @field_validator("logit_bias", mode="before")
    @classmethod
    def _json_keys_are_texts(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {
            int(key) if isinstance(key, str) and key.isdecimal() else key: bias for key, bias in value.items()
        }


class EngineOptions(BaseModel):
    """Sizes and seeds of the engine."""

    model_config = STRICT

    max_num_seqs: int = Field(
        default=16, ge=1, le=256, description="requests served at the same time; more need more memory"
    )
    max_model_len: int | None = Field(
        default=None,
        ge=2,
        le=10_000_000,
        description="tokens of prompt and output together; null = what the model allows",
    )
    prefill_chunk_tokens: int = Field(
        default=256,
        ge=1,
        le=65_536,
        description="prompt tokens read in one step; smaller keeps running requests responsive",
    )
    kv_cache_memory_gb: float = Field(
        default=4.0, gt=0.0, le=4096.0, description="memory for the attention cache, in GB"
    )
    calibrate: bool = Field(
        default=True,
        description="time a few passes before the first run with num_draft_tokens auto, a second or so; "
        "the times are kept in the cache",
    )
    seed: int = Field(
        default=0, ge=0, lt=2**63, description="where the random numbers of requests without a seed start"
    )
    forward: Literal["auto", "fused", "plain"] = Field(
        default="auto",
        description="how the model runs: fused = fast, plain = transformers' code, auto = fused if possible",
    )
