"""How one request samples and when it ends, under vLLM's names and meanings."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Annotated, Any, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from foredraft.integration.errors import UserError

MAX_LOGPROBS = 20
MAX_BIAS = 1e30  # stays finite in float32, after division by the lowest temperature too
MIN_REPETITION_PENALTY = 1e-6  # a logit divided by it stays finite in float32

Penalty = Annotated[float, Field(ge=-2.0, le=2.0, allow_inf_nan=False)]


class SamplingParams(BaseModel):
    """Every control works the same with speculation on and off.

    Raises:
        UserError: from the constructor, naming each bad field, its value and what is allowed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    n: int = Field(1, ge=1, le=128, description="completions of the prompt")
    temperature: float = Field(1.0, ge=0.0, le=100.0, allow_inf_nan=False, description="0 = greedy")
    top_p: float = Field(
        1.0, gt=0.0, le=1.0, description="keep the likeliest tokens up to this mass; 1 = off"
    )
    top_k: int = Field(0, ge=-1, lt=2**63, description="keep the k likeliest tokens; 0 or -1 = off")
    min_p: float = Field(
        0.0, ge=0.0, le=1.0, description="drop tokens below this share of the likeliest; 0 = off"
    )
    seed: int | None = Field(None, ge=-(2**63), lt=2**63, description="same seed, same tokens")
    presence_penalty: Penalty = Field(0.0, description="lowers tokens already in the output")
    frequency_penalty: Penalty = Field(0.0, description="lowers tokens per occurrence in the output")
    repetition_penalty: float = Field(
        1.0,
        ge=MIN_REPETITION_PENALTY,
        le=100.0,
        allow_inf_nan=False,
        description="above 1 lowers tokens of prompt and output",
    )
    logit_bias: dict[int, float] = Field({}, description="token id -> value added to its logit")
    allowed_token_ids: list[int] | None = Field(None, min_length=1, description="nothing else is generated")
    bad_words: list[str] = Field([], description="texts that are never completed")
    stop: list[str] = Field([], description="texts that end the output; not part of it")
    stop_token_ids: list[int] = Field([], description="tokens that end the output")
    include_stop_str_in_output: bool = Field(False, description="keep the stop text in the output")
    ignore_eos: bool = Field(False, description="go on past the end-of-sequence token")
    min_tokens: int = Field(0, ge=0, description="no end of sequence before this many tokens")
    max_tokens: int = Field(16, ge=1, description="tokens to generate at most; cut to the room left")
    num_draft_tokens: int | None = Field(
        None,
        ge=0,
        le=32,
        description="tokens drafted per step at most; 0 = no speculation, null = no own limit",
    )
    logprobs: int | None = Field(
        None, ge=0, le=MAX_LOGPROBS, description="log-probabilities per output token"
    )
    prompt_logprobs: int | None = Field(None, ge=0, le=MAX_LOGPROBS, description="the same for prompt tokens")
    skip_special_tokens: bool = Field(True, description="leave special tokens out of the text")

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise UserError(describe(error, type(self))) from None

    @field_validator("stop", "bad_words", mode="before")
    @classmethod
    def _one_text_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @field_validator("stop", "bad_words")
    @classmethod
    def _no_empty_text(cls, value: list[str], info: ValidationInfo) -> list[str]:
        if "" in value:
            raise ValueError(f"an empty text in {info.field_name} would match everywhere")
        return value

    @field_validator("logit_bias")
    @classmethod
    def _finite_bias(cls, value: dict[int, float]) -> dict[int, float]:
        for token, bias in value.items():
            if token < 0 or not abs(bias) <= MAX_BIAS:
                raise ValueError(
                    f"needs token ids >= 0 and values from {-MAX_BIAS:g} to {MAX_BIAS:g}, got {token}: {bias}"
                )
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> SamplingParams:
        if self.min_tokens > self.max_tokens:
            raise ValueError(f"min_tokens ({self.min_tokens}) must not exceed max_tokens ({self.max_tokens})")
        return self


def describe(error: ValidationError, model: type[BaseModel]) -> str:
    """One line per fault of a validation by ``model``: field, what is allowed, the value."""
    return "\n".join(describe_fault(fault, model) for fault in error.errors())


def describe_fault(fault: ErrorDetails, model: type[BaseModel]) -> str:
    """One fault on one line; an unknown field comes with the nearest known ones."""
    path = fault["loc"]
    if not path:
        return _message(fault)
    field = ".".join(str(part) for part in path)
    if fault["type"] == "extra_forbidden":
        return f"{field}: unknown field; {_offer(path, model)}"
    got = "" if isinstance(fault["input"], dict) else f" (got {fault['input']!r})"
    return f"{field}: {_message(fault)}{got}"


def _message(fault: ErrorDetails) -> str:
    if fault["type"] in ("model_type", "model_attributes_type"):
        return "needs a mapping of options"
    return fault["msg"].removeprefix("Value error, ")


def _offer(path: Sequence[int | str], model: type[BaseModel]) -> str:
    """The fields an unknown one may have meant: of its own section, and at the top of any section."""
    prefix = "".join(f"{part}." for part in path[:-1])
    for part in path[:-1]:
        model = model if isinstance(part, int) else _section(model, part) or model
    known = {name: prefix + name for name in model.model_fields}
    allowed = ", ".join(known.values())
    for section in model.model_fields:
        inner = _section(model, section)
        for name in inner.model_fields if inner else ():
            known.setdefault(name, f"{prefix}{section}.{name}")
    near = get_close_matches(str(path[-1]).replace("-", "_").lower(), known, n=1)
    if near:
        return f"did you mean {known[near[0]]}?"
    return f"known: {allowed}"


def _section(model: type[BaseModel], name: str) -> type[BaseModel] | None:
    annotation = model.model_fields[name].annotation
    if get_origin(annotation) is list:
        (annotation,) = get_args(annotation)
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
