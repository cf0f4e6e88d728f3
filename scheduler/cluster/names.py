"""How what belongs to a deployment is called, so that all of it is found again by the name alone."""

from __future__ import annotations

import re

from foredraft.scheduler.cluster.errors import ClusterError

PREFIX = "foredraft:"
SUPERVISOR = "supervisor"


def checked_name(name: str) -> str:
    """``name``, if a deployment can be called that.

    Raises:
        ClusterError: it cannot.
    """
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", name):
        raise ClusterError(
            f"name: needs 1 to 40 lower-case letters, digits and hyphens, not at its ends (got {name!r})"
        )
    return name


def namespace_of(deployment: str) -> str:
    """Ray's namespace of its actors."""
    return PREFIX + deployment


def group_name(deployment: str, worker: str) -> str:
    """The placement group of one of its workers."""
    return f"{PREFIX}{deployment}:{worker}"


def deployment_of(ray_name: str) -> str | None:
    """The deployment that a namespace or the name of a placement group belongs to, if any."""
    return ray_name.removeprefix(PREFIX).partition(":")[0] if ray_name.startswith(PREFIX) else None
