"""Ray and Serve, started once for each module and ended with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def serve_address(ray_environment: None) -> Iterator[str]:
    """The address of Ray Serve's proxy on a Ray of our own."""
    import ray
    from ray import serve
    from vllm_server import free_port

    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    port = free_port()
    serve.start(http_options={"port": port})
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        serve.shutdown()
        ray.shutdown()
