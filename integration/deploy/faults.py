"""What goes wrong on a cluster, as one line for the user."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from foredraft.integration.errors import UserError
from foredraft.scheduler.cluster.errors import ClusterError
from foredraft.scheduler.cluster.ray_import import import_ray
from foredraft.scheduler.placement.errors import PlacementError


@contextmanager
def cluster_faults() -> Iterator[None]:
    """Turn errors of the cluster into ``UserError``."""
    try:
        yield
    except (ClusterError, PlacementError) as error:
        raise UserError(" ".join(str(error).split())) from error
    except Exception as error:
        ray = import_ray()
        if not isinstance(error, (ray.exceptions.RayError, ray.serve.exceptions.RayServeException)):
            raise
        first = str(error).strip().partition("\n")[0]
        raise UserError(f"Ray: {type(error).__name__}: {first}") from error
