"""What a server is told beside its engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from foredraft.integration.errors import UserError


@dataclass(frozen=True)
class ServerSettings:
    """One server. It can be pickled.

    Attributes:
        model_names: what clients may call the model; the first is the one in answers.
        proposer: what drafts, as the metrics name it.
        sampling: what requests that do not say otherwise get in place of OpenAI's defaults, by field of
            ``SamplingParams``.
        api_keys: one of them must come as ``Authorization: Bearer KEY``; empty = everyone may ask.
        max_body_bytes: of a request.
        max_open_requests: prompts waiting or running at once; more are answered with 429.
        health_max_age_s: an engine that generated within this needs no new proof.
        health_timeout_s: how long a proof may take.

    Raises:
        UserError: a field that cannot be.
    """

    model_names: tuple[str, ...]
    proposer: str = "none"
    sampling: Mapping[str, Any] = field(default_factory=dict)
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    max_body_bytes: int = 8 * 2**20
    max_open_requests: int = 1024
    health_max_age_s: float = 5.0
    health_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        if not self.model_names or not all(self.model_names):
            raise UserError("served-model-name: needs one name at least, and none that is empty")
        if any(not key or not key.isascii() for key in self.api_keys):
            raise UserError("api-key: keys are ASCII texts, not empty")
        for name in ("max_body_bytes", "max_open_requests", "health_max_age_s", "health_timeout_s"):
            if getattr(self, name) <= 0:
                raise UserError(f"{name}: must be above 0, got {getattr(self, name)}")
