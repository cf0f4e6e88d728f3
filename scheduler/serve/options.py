"""How the ingress treats requests, and when a variant is taken out."""

from __future__ import annotations

from dataclasses import dataclass, field, fields


@dataclass(frozen=True)
class StandingPolicy:
    """When a variant misbehaves, and when it is trusted again. One variant always stays in.

    Attributes:
        window_s: how far back requests count.
        min_requests: in the window, before their error rate says anything.
        max_error_rate: above it the variant is taken out. Errors are answers from 500 on, broken streams and
            replicas that died; what a client did wrong is none.
        probe_period_s: how often each variant is asked for one token.
        probe_timeout_s: how long that may take.
        failed_probes_out: as many in a row take the variant out.
        good_probes_back: as many in a row bring it back.

    Raises:
        ValueError: a field that cannot be.
    """

    window_s: float = 60.0
    min_requests: int = 20
    max_error_rate: float = 0.5
    probe_period_s: float = 5.0
    probe_timeout_s: float = 10.0
    failed_probes_out: int = 3
    good_probes_back: int = 3

    def __post_init__(self) -> None:
        if not 0 <= self.max_error_rate < 1:
            raise ValueError(f"standing: max_error_rate must be from 0 to below 1, got {self.max_error_rate}")
        for one in fields(self):
            if one.name != "max_error_rate" and getattr(self, one.name) <= 0:
                raise ValueError(f"standing: {one.name} must be above 0, got {getattr(self, one.name)}")


@dataclass(frozen=True)
class ServeOptions:
    """The ingress.

    Attributes:
        api_keys: one of them must come as ``Authorization: Bearer KEY``; empty = everyone may ask.
        max_body_bytes: of a request.
        accept_timeout_s: a request that no replica of its variant takes within this is answered with 503.
        silence_timeout_s: longest wait for the next piece of an answer; then it ends with an error.
        health_max_age_s: a variant that generated within this needs no new proof for ``/health``.
        standing: when a variant is taken out.
        ingress_cpus: what the ingress reserves in Ray's books.

    Raises:
        ValueError: a field that cannot be.
    """

    api_keys: tuple[str, ...] = field(default=(), repr=False)
    max_body_bytes: int = 8 * 2**20
    accept_timeout_s: float = 60.0
    silence_timeout_s: float = 600.0
    health_max_age_s: float = 5.0
    standing: StandingPolicy = StandingPolicy()
    ingress_cpus: float = 0.5

    def __post_init__(self) -> None:
        if any(not key or not key.isascii() for key in self.api_keys):
            raise ValueError("api_keys: keys are ASCII texts, not empty")
        for name in ("max_body_bytes", "accept_timeout_s", "silence_timeout_s", "health_max_age_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}: must be above 0, got {getattr(self, name)}")
        if self.ingress_cpus < 0:
            raise ValueError(f"ingress_cpus: must be 0 or more, got {self.ingress_cpus}")
