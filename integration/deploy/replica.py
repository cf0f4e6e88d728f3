"""What a replica of a deployment builds: an engine, which asks the draft server that the plan gives it."""

from __future__ import annotations

from dataclasses import dataclass

from foredraft.integration.config import Config
from foredraft.integration.server.replica import EmbeddedReplica
from foredraft.integration.server.settings import ServerSettings
from foredraft.scheduler.http.asgi import AsgiApp


@dataclass(frozen=True)
class DeployedReplica:
    """Builds the app of one replica, in its own process; itself it is small and can be pickled.

    Attributes:
        configs: of each replica that there may be.
    """

    configs: tuple[Config, ...]
    settings: ServerSettings

    def __call__(self) -> AsgiApp:
        """Load the model and make the app.

        Raises:
            UserError: the engine cannot be built.
        """
        from ray import serve

        # Serve numbers the replicas of a deployment, and gives the number of one that died to the next.
        rank = serve.get_replica_context().rank.rank
        return EmbeddedReplica(self.configs[rank % len(self.configs)], self.settings)()
