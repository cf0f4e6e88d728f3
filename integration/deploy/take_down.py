"""Ending a deployment: first who serves, then who drafts, then the room they had."""

from __future__ import annotations

from dataclasses import dataclass

from foredraft.scheduler.cluster.removal import Removed, remove_deployment
from foredraft.scheduler.cluster.serve_app import delete_application


@dataclass(frozen=True)
class TakenDown:
    """What was there and is not any more."""

    application: bool
    workers: Removed

    @property
    def anything(self) -> bool:
        """Whether there was something to remove."""
        return self.application or bool(self.workers.actors or self.workers.groups)

    def described(self) -> str:
        """For people."""
        parts = ["its application and replicas"] if self.application else []
        parts += [f"actors {', '.join(self.workers.actors)}"] if self.workers.actors else []
        parts += [f"{len(self.workers.groups)} placement groups"] if self.workers.groups else []
        if self.workers.unfinished:
            parts.append(f"work that was not done in time: {', '.join(self.workers.unfinished)}")
        return "; ".join(parts) or "nothing was there"


def take_down(name: str, drain_s: float) -> TakenDown:
    """Remove everything of a deployment from the cluster that this process is connected to.

    Raises:
        ClusterError: something does not go away.
    """
    return TakenDown(delete_application(name), remove_deployment(name, drain_s))
