"""Ray's own chatter, kept from the terminal: what matters of it is said in our words."""

from __future__ import annotations

import importlib
import logging
import os

from foredraft.scheduler.cluster.ray_import import import_ray


def quiet_ray() -> None:
    """For a command that uses Ray. Its log files are not touched.

    Raises:
        ClusterError: Ray is not installed.
    """
    os.environ.setdefault("RAY_SCHEDULER_EVENTS", "0")
    import_ray()
    importlib.import_module("ray.serve")  # which sets the levels of its loggers
    for name in ("ray", "ray.serve"):
        logging.getLogger(name).setLevel(logging.ERROR)
