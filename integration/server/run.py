"""An app on a port, until someone ends it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from foredraft.integration.errors import UserError
from foredraft.scheduler.http.asgi import AsgiApp

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Server(uvicorn.Server):
    """Ctrl-C or SIGTERM lets open requests finish; a second one ends the process at once."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Unlike uvicorn's own, this does not raise the signal again: to be ended is a server's good end."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._end, number)
        try:
            yield
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)

    def _end(self, number: int) -> None:
        if self.should_exit:
            os._exit(128 + number)
        self.should_exit = True


def listen(host: str, port: int) -> socket.socket:
    """A bound socket, so that a taken port is known before a model is loaded.

    Raises:
        UserError: the address cannot be had.
    """
    try:
        kind, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(kind, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()  # else a second server could bind it too
    except (OSError, OverflowError) as error:
        raise UserError(f"--host {host} --port {port}: cannot listen there: {error}") from None
    return listener


def run(app: AsgiApp, listener: socket.socket, drain_timeout_s: float) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Args:
        drain_timeout_s: what open requests may then take.

    Raises:
        RuntimeError: the app did not start.
    """
    config = uvicorn.Config(
        app, lifespan="on", log_level="info", timeout_graceful_shutdown=max(1, int(drain_timeout_s))
    )
    server = Server(config)
    server.run(sockets=[listener])
    if not server.started:
        raise RuntimeError("the server did not start")
