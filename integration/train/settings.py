"""What ``foredraft train draft`` is told: one schema behind its flags."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError, model_validator

from foredraft.integration.config_sections import STRICT
from foredraft.integration.errors import UserError
from foredraft.integration.sampling_params import describe_fault

WRITE_TOKENS = 450_000
PIECE_TOKENS = 512
"""Longer texts are cut into pieces of this many tokens."""


class TrainSettings(BaseModel):
    """Everything that decides which draft comes out, the target aside.

    Raises:
        UserError: from the constructor, naming each bad flag, its value and what is allowed.
    """

    model_config = STRICT

    data: tuple[str, ...] = Field(
        (), description="JSONL of texts, chats or prompts; may be repeated. Left out: the target writes all"
    )
    write_tokens: int | None = Field(
        None,
        ge=0,
        le=10**10,
        description=f"tokens that the target writes by itself; left out: {WRITE_TOKENS} where no data is "
        "given, else none",
    )
    max_response_tokens: int = Field(256, ge=2, le=4096, description="tokens of one written answer at most")
    form: Literal["states", "plain"] = Field(
        "states",
        description="states = also reads the target's last hidden state; plain = a small language model",
    )
    layers: int = Field(1, ge=1, le=16, description="decoder layers; more guess better and cost more")
    init: Literal["last", "first", "fresh"] = Field(
        "last", description="layers to start from: the target's last or first ones, or random weights"
    )
    head_tokens: int = Field(
        8192,
        ge=2,
        le=1_000_000,
        description="most frequent tokens the draft can propose; fewer make drafting cheaper",
    )
    train_tokens: int = Field(
        3_000_000, ge=1, le=10**12, description="tokens to train on, over as many epochs as that takes"
    )
    batch_tokens: int = Field(1024, ge=PIECE_TOKENS, le=1_000_000, description="tokens per training step")
    learning_rate: float = Field(1e-3, gt=0.0, le=1.0, description="its highest value")
    loss: Literal["kl", "tv"] = Field(
        "kl", description="distance to the target's law: kl = cross entropy, tv = total variation"
    )
    state_loss: float = Field(
        0.0,
        ge=0.0,
        le=1e6,
        description="weight of the distance to the target's hidden states (form states)",
    )
    rollout: int = Field(
        1, ge=1, le=4, description="drafted tokens trained in a row, on the draft's own states (form states)"
    )
    seed: int = Field(0, ge=0, lt=2**31, description="same seed, same draft")

    def __init__(self, /, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            lines = (describe_fault(fault, type(self)) for fault in error.errors())
            raise UserError("\n".join(map(as_flag, lines))) from None

    @property
    def tokens_to_write(self) -> int:
        """Tokens that the target writes by itself."""
        if self.write_tokens is not None:
            return self.write_tokens
        return 0 if self.data else WRITE_TOKENS

    @model_validator(mode="after")
    def _fits_the_form(self) -> TrainSettings:
        if self.form == "plain":
            if self.rollout > 1:
                raise ValueError(f"rollout: needs form states, a plain draft has no states ({self.rollout})")
            if self.state_loss > 0.0:
                raise ValueError(
                    f"state_loss: needs form states, a plain draft has no states ({self.state_loss})"
                )
        return self


def as_flag(text: str) -> str:
    """ "batch_tokens: too small" -> "--batch-tokens: too small"."""
    field, colon, rest = text.partition(":")
    field = field.partition(".")[0] if colon else field
    return f"--{field.replace('_', '-')}{colon}{rest}"
