"""From variants to an application of Ray Serve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from foredraft.scheduler.serve.options import ServeOptions
from foredraft.scheduler.serve.variant import INGRESS, Variant, check_variants

if TYPE_CHECKING:
    from ray import serve

INGRESS_ONGOING_REQUESTS = 10_000
CONSTRUCTOR_RETRIES = 3


def build_application(variants: Sequence[Variant], options: ServeOptions) -> serve.Application:
    """What ``serve.run`` takes: a deployment per variant, and the ingress in front of them.

    Raises:
        ValueError: variants that cannot stand side by side.
        ModuleNotFoundError: Ray is not installed.
    """
    from ray import serve

    from foredraft.scheduler.serve.ingress import Ingress
    from foredraft.scheduler.serve.replica import Replica

    check_variants(tuple(variants))
    replicas = [
        serve.deployment(Replica, **deployment_options(variant)).bind(variant.replica) for variant in variants
    ]
    # One ingress: standings and metrics live in it, and two would not agree.
    ingress = serve.deployment(
        serve.ingress()(Ingress),
        name=INGRESS,
        num_replicas=1,
        max_ongoing_requests=INGRESS_ONGOING_REQUESTS,
        ray_actor_options={"num_cpus": options.ingress_cpus},
        graceful_shutdown_timeout_s=max(variant.graceful_shutdown_timeout_s for variant in variants),
    )
    weights = {variant.name: variant.weight for variant in variants}
    return ingress.bind(options, weights, *replicas)


def deployment_options(variant: Variant) -> dict[str, Any]:
    """A variant in the options of ``serve.deployment``."""
    given: dict[str, Any] = {
        "name": variant.name,
        "ray_actor_options": dict(variant.ray_actor_options),
        "max_ongoing_requests": variant.max_ongoing_requests,
        "graceful_shutdown_timeout_s": variant.graceful_shutdown_timeout_s,
        "health_check_period_s": variant.health_check_period_s,
        "health_check_timeout_s": variant.health_check_timeout_s,
        "max_constructor_retry_count": CONSTRUCTOR_RETRIES,
    }
    if variant.autoscaling is None:
        given["num_replicas"] = variant.num_replicas
    else:
        given["autoscaling_config"] = asdict(variant.autoscaling)
    if variant.bundles:
        given["placement_group_bundles"] = [dict(bundle) for bundle in variant.bundles]
        given["placement_group_strategy"] = variant.placement_strategy
    if variant.bundle_labels:
        given["placement_group_bundle_label_selector"] = [dict(one) for one in variant.bundle_labels]
    return given
