"""vLLM's own OpenAI app, drafting with our plugin, as a replica behind Ray Serve."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from openai_server import events, joined
from vllm_server import PROMPT, free_port

from foredraft.integration.config_sources import load_config
from foredraft.integration.vllm.replica import VllmReplica
from foredraft.scheduler.serve import ServeOptions, Variant, build_application

pytestmark = [pytest.mark.vllm, pytest.mark.ray]

SIZES = ("--dtype", "float32", "--enforce-eager", "--max-model-len", "256", "--max-num-seqs", "4")


def variant(folder: Path, proposer: str) -> Variant:
    loaded = load_config(None, {"model": str(folder), "proposer": proposer, "num_draft_tokens": 4})
    replica = VllmReplica(loaded, (*SIZES, "--served-model-name", "toy"))
    cpus = {"num_cpus": 0.1}
    return Variant(f"with-{proposer}", replica, ray_actor_options=cpus, health_check_timeout_s=120)


@pytest.fixture(scope="module")
def client(served_folder: Path) -> Iterator[httpx.Client]:
    import ray
    from ray import serve

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RAY_ADDRESS", raising=False)
        patch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
        port = free_port()
        serve.start(http_options={"port": port})
        try:
            variants = [variant(served_folder, name) for name in ("ngram", "none")]
            serve.run(build_application(variants, ServeOptions(ingress_cpus=0.1)), route_prefix="/")
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
                yield client
        finally:
            serve.shutdown()
            ray.shutdown()


def test_vllms_app_answers_behind_serve_and_drafts(client: httpx.Client) -> None:
    asked = {"model": "toy", "prompt": PROMPT, "temperature": 0, "max_tokens": 24}
    texts = {}
    for name in ("with-ngram", "with-none"):
        named = {"x-foredraft-variant": name}
        whole = client.post("/v1/completions", json=asked, headers=named)
        assert whole.status_code == 200, whole.text
        assert whole.headers["x-foredraft-variant"] == name
        stream = client.post("/v1/completions", json=asked | {"stream": True}, headers=named)
        texts[name] = whole.json()["choices"][0]["text"]
        assert joined(events(stream.text)) == texts[name]
    assert texts["with-ngram"] == texts["with-none"]
    refused = client.post("/v1/completions", json=asked | {"max_tokens": -1})
    assert refused.status_code == 400
    assert client.get("/health").status_code == 200
    accepted = {one["name"]: one["acceptance_rate"] for one in client.get("/status").json()["variants"]}
    assert accepted["with-none"] is None
    assert accepted["with-ngram"] is not None
    page = client.get("/metrics").text
    assert "foredraft_drafted_tokens_total{" in page
