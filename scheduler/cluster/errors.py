"""What goes wrong between us and a Ray cluster."""

from __future__ import annotations


class ClusterError(Exception):
    """One line: what could not be done, what is missing, and what the cluster has."""


class NoClusterError(ClusterError):
    """There is no Ray where one was looked for."""


class NameTakenError(ClusterError):
    """A deployment of this name runs already: what bears the name is somebody else's."""
