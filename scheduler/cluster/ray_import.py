"""Ray is optional: imported where it is needed, and its absence said in one line."""

from __future__ import annotations

import os
from typing import Any

from foredraft.scheduler.cluster.errors import ClusterError


def import_ray() -> Any:
    """The module ``ray``.

    Raises:
        ClusterError: it is not installed.
    """
    # Ray asks about its usage statistics when it starts a cluster; who wants them sets this to 1.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise ClusterError(f"ray: is not installed ({error}); pip install 'foredraft[ray]'") from None
    return ray
