"""Whether a port is free for Ray Serve, which would share it with another Ray. No Ray."""

from __future__ import annotations

import socket

from foredraft.scheduler.cluster.serve_app import why_not_bound


def test_a_port_that_another_ray_would_share_is_taken() -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert why_not_bound("127.0.0.1", port) == "Address already in use"
        assert why_not_bound("0.0.0.0", port) == "Address already in use"
    assert why_not_bound("127.0.0.1", port) is None


def test_an_address_of_another_machine() -> None:
    assert why_not_bound("192.0.2.1", 8000) == "Cannot assign requested address"
