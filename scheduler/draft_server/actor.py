"""The draft server as a Ray actor."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from typing import Any

from foredraft.proposers.remote_messages import DraftAnswer, DraftRequest, ServerCard, TargetCard
from foredraft.scheduler.cluster.ray_import import import_ray
from foredraft.scheduler.draft_server.core import DraftServer, DraftServerError
from foredraft.scheduler.draft_server.hosted import DraftFactory
from foredraft.scheduler.draft_server.options import MOST_WAITING, DraftServerOptions

MOST_CALLS = MOST_WAITING + 16
"""Calls that find a thread: those of as many targets as may wait, ``hello``, ``check`` and the like."""

SWITCH_S = 0.0005
"""How long the thread that drafts may keep a new message from being taken in."""


class DraftActor:
    """``DraftServer`` behind Ray calls: each waits in a thread, one thread drafts.

    On an event loop the calls would take a third longer.
    """

    def __init__(self, factory: DraftFactory, options: DraftServerOptions) -> None:
        sys.setswitchinterval(SWITCH_S)
        self._server = DraftServer(factory(), options)
        self._worker = threading.Thread(target=self._server.run, name="drafting", daemon=True)
        self._worker.start()

    def hello(self, card: TargetCard) -> ServerCard:
        """See ``DraftServer.hello``."""
        return self._server.hello(card)

    def draft(self, request: DraftRequest) -> DraftAnswer:
        """See ``DraftServer.submit``."""
        return self._server.submit(request).result()

    def incarnation(self) -> str:
        """Of this life: another one after a restart."""
        return self._server.incarnation

    def check(self, timeout_s: float = 10.0) -> str:
        """Draft something; returns the incarnation.

        Raises:
            DraftServerError: it cannot, or not in time.
        """
        if not self._worker.is_alive():
            raise DraftServerError("the thread that drafts has ended")
        self._server.check(timeout_s)
        return self._server.incarnation

    def drain(self, timeout_s: float = 10.0) -> bool:
        """Take nothing in any more and finish what waits; whether it did in time."""
        return self._server.drain(timeout_s)

    def statistics(self) -> dict[str, float | int | None]:
        """See ``DraftServer.statistics``."""
        return self._server.statistics()


def start_draft_server(
    name: str,
    namespace: str,
    factory: DraftFactory,
    options: DraftServerOptions | None = None,
    actor_options: Mapping[str, Any] | None = None,
) -> Any:
    """Start the actor; Ray has to be connected. Returns its handle at once: ``check`` waits until it drafts.

    Calls are never repeated, and Ray does not restart it unless ``actor_options`` say so: whoever supervises
    it starts it again, under the same name.

    Args:
        factory: builds the draft inside the actor; pickled.
        actor_options: for ``ray.remote(...).options``: resources, lifetime, scheduling strategy, restarts.

    Raises:
        ValueError: the name is taken.
        ClusterError: Ray is not installed.
    """
    ray = import_ray()
    given = {"max_concurrency": MOST_CALLS, "max_task_retries": 0} | dict(actor_options or {})
    actor = ray.remote(DraftActor).options(name=name, namespace=namespace, **given)
    return actor.remote(factory, options or DraftServerOptions())
