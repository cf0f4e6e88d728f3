"""A variant: one configuration of the server, and how many replicas of it run where."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from foredraft.scheduler.http.asgi import AsgiApp

ReplicaFactory = str | Callable[[], AsgiApp]
"""Builds the OpenAI-compatible ASGI app of a replica, inside it: ``package.module:name`` of a callable
without arguments, or such a callable that can be pickled. The app's lifespan starts and ends its engine."""

PlacementStrategy = Literal["PACK", "STRICT_PACK", "SPREAD", "STRICT_SPREAD"]

INGRESS = "ingress"
"""The name of the ingress' own deployment."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


@dataclass(frozen=True)
class Autoscaling:
    """How Ray Serve changes the number of replicas by their load.

    Attributes:
        target_ongoing_requests: per replica, on average.
        upscale_delay_s: load must stay high this long before replicas are added.
        downscale_delay_s: so it is for low load.

    Raises:
        ValueError: the bounds do not fit together.
    """

    min_replicas: int = 1
    max_replicas: int = 4
    target_ongoing_requests: float = 8.0
    upscale_delay_s: float = 10.0
    downscale_delay_s: float = 120.0

    def __post_init__(self) -> None:
        if not 1 <= self.min_replicas <= self.max_replicas:
            raise ValueError(
                f"autoscaling: needs 1 <= min_replicas <= max_replicas, got {self.min_replicas} and "
                f"{self.max_replicas}"
            )
        if self.target_ongoing_requests <= 0 or self.upscale_delay_s < 0 or self.downscale_delay_s < 0:
            raise ValueError("autoscaling: target_ongoing_requests must be above 0 and delays not below")


@dataclass(frozen=True)
class Variant:
    """One configuration behind the address.

    Attributes:
        weight: its share of the keys, relative to the others; 0 = only those who name it get it.
        replica: what each replica runs.
        num_replicas: how many, without ``autoscaling``.
        bundles: resources of a replica's placement group in Ray's names, the replica itself in the first;
            empty = none.
        bundle_labels: node labels that each bundle needs; empty = none.
        ray_actor_options: resources and environment of a replica's own actor.
        max_ongoing_requests: sent to a replica at once; more wait at the ingress.
        graceful_shutdown_timeout_s: what a replica that is to end may take for its open requests.
        health_check_period_s: how often each replica is asked whether it can generate; three failures in a
            row replace it. One whose process is gone is noticed, and replaced, at the next check.

    Raises:
        ValueError: a field that cannot be.
    """

    name: str
    replica: ReplicaFactory
    weight: float = 1.0
    num_replicas: int = 1
    autoscaling: Autoscaling | None = None
    bundles: tuple[Mapping[str, float], ...] = ()
    bundle_labels: tuple[Mapping[str, str], ...] = ()
    placement_strategy: PlacementStrategy = "PACK"
    ray_actor_options: Mapping[str, Any] = field(default_factory=dict)
    max_ongoing_requests: int = 64
    graceful_shutdown_timeout_s: float = 30.0
    health_check_period_s: float = 5.0
    health_check_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"variant: a name has letters, digits, '_', '.' and '-', got {self.name!r}")
        if self.name == INGRESS:
            raise ValueError(f"variant: the name {INGRESS!r} is taken by the ingress itself")
        where = f"variant {self.name}"
        if not (math.isfinite(self.weight) and self.weight >= 0):
            raise ValueError(f"{where}: weight must be 0 or more, got {self.weight}")
        if self.num_replicas < 1:
            raise ValueError(f"{where}: num_replicas must be 1 or more, got {self.num_replicas}")
        if self.max_ongoing_requests < 1:
            raise ValueError(f"{where}: max_ongoing_requests must be 1 or more")
        if self.bundle_labels and len(self.bundle_labels) != len(self.bundles):
            raise ValueError(f"{where}: bundle_labels needs an entry for each of the bundles")
        for name in ("graceful_shutdown_timeout_s", "health_check_period_s", "health_check_timeout_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{where}: {name} must be above 0, got {getattr(self, name)}")


def check_variants(variants: tuple[Variant, ...]) -> None:
    """Refuse variants that cannot stand side by side.

    Raises:
        ValueError: none, a name twice, or no weight at all.
    """
    if not variants:
        raise ValueError("variants: needs one at least")
    names = [variant.name for variant in variants]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"variants: the name {twice!r} is given twice")
    if not any(variant.weight for variant in variants):
        raise ValueError("variants: one at least needs a weight above 0")
