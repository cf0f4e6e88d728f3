"""Carrying a plan out on Ray: connecting, placement groups, supervised actors, and taking all of it down.

Importing this package needs no Ray; connecting does.
"""

from foredraft.scheduler.cluster.backoff import RestartPolicy
from foredraft.scheduler.cluster.connect import Connection, LocalCluster, connect
from foredraft.scheduler.cluster.deployment import (
    Deployment,
    StartOptions,
    deployment_exists,
    find_deployment,
    start_deployment,
)
from foredraft.scheduler.cluster.errors import ClusterError, NoClusterError
from foredraft.scheduler.cluster.removal import Removed, deployments, remove_deployment
from foredraft.scheduler.cluster.worker import Worker, WorkerReport, WorkerSpec

__all__ = [
    "ClusterError",
    "Connection",
    "Deployment",
    "LocalCluster",
    "NoClusterError",
    "Removed",
    "RestartPolicy",
    "StartOptions",
    "Worker",
    "WorkerReport",
    "WorkerSpec",
    "connect",
    "deployment_exists",
    "deployments",
    "find_deployment",
    "remove_deployment",
    "start_deployment",
]
