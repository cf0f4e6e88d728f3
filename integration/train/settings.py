"""What ``foredraft train`` is told: one schema behind its flags, and what each of its two kinds adds."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, Field, ValidationError, model_validator

from foredraft.integration.config_sections import STRICT
from foredraft.integration.errors import UserError
from foredraft.integration.sampling_params import describe_fault

WRITE_TOKENS = 450_000
PIECE_TOKENS = 512
"""Longer texts are cut into pieces of this many tokens."""

DEFAULT_DEPTH = 15
"""Without ``exit_layer``, one in so many layers comes before the exit: a guess, ``--sweep`` measures."""


class TrainSettings(BaseModel):
    """What both kinds have in common: everything that decides what comes out, the target aside.

    Attributes:
        kind: of what is trained, as in ``foredraft train KIND``.
        noun, with_article: the same in a sentence.

    Raises:
        UserError: from the constructor, naming each bad flag, its value and what is allowed.
    """

    model_config = STRICT
    kind: ClassVar[Literal["draft", "exit"]]
    noun: ClassVar[str]
    with_article: ClassVar[str]

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
    form: Literal["states", "plain"] = "states"
    layers: int = 1
    init: str = "fresh"
    head_tokens: int = Field(
        8192,
        ge=2,
        le=1_000_000,
        description="most frequent tokens that can be proposed; fewer make drafting cheaper",
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
        1, ge=1, le=4, description="drafted tokens trained in a row, each on its own states (form states)"
    )
    seed: int = Field(0, ge=0, lt=2**31, description="same seed, same result")

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

    @abstractmethod
    def for_target(self, num_layers: int) -> Self:
        """The same, with what hangs on the target's number of layers decided.

        Raises:
            UserError: the target has too few of them.
        """

    @abstractmethod
    def first_layer(self, num_layers: int) -> int:
        """The first of the target's layers to start from."""

    @model_validator(mode="after")
    def _fits_the_form(self) -> Self:
        if self.form == "plain":
            for name in ("rollout", "state_loss"):
                value, default = getattr(self, name), type(self).model_fields[name].default
                if value > default:
                    raise ValueError(f"{name}: needs form states, the form plain has no states ({value})")
        return self


class DraftSettings(TrainSettings):
    """``foredraft train draft``."""

    kind = "draft"
    noun = "draft"
    with_article = "a draft"

    form: Literal["states", "plain"] = Field(
        "states",
        description="states = also reads the target's last hidden state; plain = a small language model",
    )
    layers: int = Field(1, ge=1, le=16, description="decoder layers; more guess better and cost more")
    init: Literal["last", "first", "fresh"] = Field(
        "last", description="layers to start from: the target's last or first ones, or random weights"
    )

    def for_target(self, num_layers: int) -> Self:
        """See ``TrainSettings``."""
        if self.layers > num_layers:
            raise UserError(
                f"--layers: the target has {num_layers}, the draft cannot have more (got {self.layers})"
            )
        return self

    def first_layer(self, num_layers: int) -> int:
        """See ``TrainSettings``."""
        return num_layers - self.layers if self.init == "last" else 0


class ExitSettings(TrainSettings):
    """``foredraft train exit``."""

    kind = "exit"
    noun = "exit head"
    with_article = "an exit head"

    exit_layer: int | None = Field(
        None,
        ge=1,
        le=1000,
        description="layers of the target that draft, fewer than it has; deeper guesses better and costs "
        f"more; left out: one in {DEFAULT_DEPTH}, at least 1",
    )
    form: Literal["states", "plain"] = Field(
        "states",
        description="states = also reads the target's last hidden state of the token before; plain = the "
        "state after the exit layer alone",
    )
    layers: int = Field(1, ge=1, le=2, description="decoder layers of its own, behind those of the target")
    init: Literal["next", "last", "fresh"] = Field(
        "next",
        description="layers to start from: the target's next ones after the exit, its last ones, or random "
        "weights",
    )

    def for_target(self, num_layers: int) -> Self:
        """See ``TrainSettings``."""
        exit_layer = self.exit_layer or max(1, round(num_layers / DEFAULT_DEPTH))
        if num_layers == 1:
            raise UserError("--exit-layer: the target has only one layer, nothing can be left early")
        if exit_layer >= num_layers:
            raise UserError(
                f"--exit-layer: the target has {num_layers} layers, it can be left after 1 to "
                f"{num_layers - 1} (got {exit_layer})"
            )
        if self.layers > num_layers - exit_layer:
            raise UserError(
                f"--layers: only {num_layers - exit_layer} of the target's layers follow the exit, the exit "
                f"head cannot have more (got {self.layers})"
            )
        return self.model_copy(update={"exit_layer": exit_layer})

    def first_layer(self, num_layers: int) -> int:
        """See ``TrainSettings``."""
        assert self.exit_layer is not None, "for_target decides it"
        return num_layers - self.layers if self.init == "last" else self.exit_layer


def as_flag(text: str) -> str:
    """ "batch_tokens: too small" -> "--batch-tokens: too small"."""
    field, colon, rest = text.partition(":")
    field = field.partition(".")[0] if colon else field
    return f"--{field.replace('_', '-')}{colon}{rest}"
