"""A replica of the embedded engine: what Ray Serve builds in each of its actors."""

from __future__ import annotations

from dataclasses import dataclass

from foredraft.integration.config import Config
from foredraft.integration.server.settings import ServerSettings
from foredraft.scheduler.http.asgi import AsgiApp


@dataclass(frozen=True)
class EmbeddedReplica:
    """Builds the app of an embedded engine where it is called; itself it is small and can be pickled."""

    config: Config
    settings: ServerSettings

    def __call__(self) -> AsgiApp:
        """Load the model and make the app.

        Raises:
            UserError: the engine cannot be built.
        """
        from foredraft.integration.embedded.build import build_engine, load_target
        from foredraft.integration.server.app import create_app

        return create_app(build_engine(self.config, load_target(self.config)), self.settings)
