"""``foredraft serve --engine embedded``."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from importlib.util import find_spec

from foredraft.integration.config_sources import LoadedConfig
from foredraft.integration.errors import UserError
from foredraft.integration.server.flags import parse_flags, server_settings, with_flags_of

NEEDED = ("fastapi", "uvicorn", "prometheus_client")


def require_server() -> None:
    """Raises ``UserError`` where a package of the extra ``server`` is missing."""
    for package in NEEDED:
        if find_spec(package) is None:
            raise UserError(f"{package}: is not installed; pip install foredraft[server]")


def serve_embedded(loaded: LoadedConfig, given: Sequence[str], taken: Collection[str]) -> None:
    """Serve the embedded engine until SIGTERM or Ctrl-C.

    Args:
        given: flags, and a model's name.
        taken: options of the configuration whose flags were read already.

    Raises:
        UserError: a flag, the address, or the engine cannot be had.
    """
    flags = parse_flags(given, taken)
    config, options = with_flags_of(loaded, flags)
    settings = server_settings(config, options, flags)
    require_server()
    from foredraft.integration.server.replica import EmbeddedReplica
    from foredraft.integration.server.run import listen, run

    listener = listen(flags.host, flags.port)
    app = EmbeddedReplica(config, settings)()
    where = f"http://{flags.host}:{listener.getsockname()[1]}"
    print(f"{settings.model_names[0]} at {where}, proposer {config.proposer}", file=sys.stderr, flush=True)
    run(app, listener, flags.drain_timeout)
