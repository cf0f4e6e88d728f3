"""A draft model in its own process, for one or many targets. ``core`` is all of it but Ray."""

from foredraft.scheduler.draft_server.core import DraftServer, DraftServerError
from foredraft.scheduler.draft_server.hosted import DraftFactory, HostedDraft
from foredraft.scheduler.draft_server.options import DraftServerOptions

__all__ = ["DraftFactory", "DraftServer", "DraftServerError", "DraftServerOptions", "HostedDraft"]
