"""vLLM's own OpenAI server with the plugin on: another process has the engine (F51, F55, F183)."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from letters import TOKENIZER
from vllm_toys import toy_folder

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

PROMPT = "abcabcabc"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = toy_folder(tmp_path_factory.mktemp("served"), vocab_size=257, num_layers=1, head_scale=0.5)
    TOKENIZER.save_pretrained(folder)
    return folder


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[str]:
    """The address of a server whose engine core is a process of its own."""
    port = free_port()
    asked = {"foredraft": {"proposer": "ngram", "num_draft_tokens": 5, "ngram": {"min_n": 1}}}
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    command += ["--port", str(port), "--dtype", "float32", "--enforce-eager", "--max-model-len", "256"]
    command += ["--additional-config", json.dumps(asked), "--max-num-seqs", "8", "--served-model-name", "toy"]
    environment = os.environ | {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_LOGGING_LEVEL": "INFO"}
    log = folder / "server.log"
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment, cwd=folder)
        try:
            wait_until_up(f"http://127.0.0.1:{port}", process, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(60)
    assert "foredraft drafts with ngram" in log.read_text()


def wait_until_up(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    import httpx

    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()[-3000:]
        try:
            if httpx.get(f"{address}/health", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.5)
    raise AssertionError(log.read_text()[-3000:])


def complete(server: str, **options: Any) -> Any:
    import httpx

    body = {"model": "toy", "prompt": PROMPT, "temperature": 0, "max_tokens": 24} | options
    return httpx.post(f"{server}/v1/completions", json=body, timeout=120)


def text_of(response: Any) -> str:
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["text"])


def test_controls_that_vllm_refuses_under_speculation_are_served(server: str) -> None:
    banned = text_of(complete(server, logit_bias={str(token): -100 for token in range(0, 256, 2)}))
    assert banned != text_of(complete(server))
    seeded = {"temperature": 1.0, "min_p": 0.1, "seed": 3}
    assert text_of(complete(server, **seeded)) == text_of(complete(server, **seeded))


def test_a_mixed_batch_with_logprobs_and_grammar_leaves_the_server_alive(server: str) -> None:
    options: list[dict[str, Any]] = [
        {"logprobs": 0},
        {"logprobs": 1},
        {"logprobs": 5},
        {"temperature": 0.8, "top_p": 0.9},
        {"structured_outputs": {"regex": "[abc]{3}-[0-9]{2}"}},
        {"presence_penalty": 1.0, "min_tokens": 5},
    ]
    with ThreadPoolExecutor(len(options)) as pool:
        responses = list(pool.map(lambda one: complete(server, **one), options))
    assert [response.status_code for response in responses] == [200] * len(options)
    assert text_of(responses[0]) == text_of(responses[2]) == text_of(complete(server))
    grammar = text_of(responses[4])
    assert len(grammar) == 6
    assert grammar[3] == "-"
    chosen = [response.json()["choices"][0]["logprobs"]["token_logprobs"] for response in responses[:3]]
    assert all(-20 < logprob < 0 for logprob in chosen[0])
    assert chosen[0] == pytest.approx(chosen[1], abs=1e-5)
    assert chosen[0] == pytest.approx(chosen[2], abs=1e-5)


def test_streamed_text_is_the_whole_text_and_a_client_may_leave(server: str) -> None:
    import httpx

    body = {"model": "toy", "prompt": PROMPT, "temperature": 0, "max_tokens": 24, "stream": True}
    pieces = []
    with httpx.stream("POST", f"{server}/v1/completions", json=body, timeout=120) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                pieces.append(json.loads(line[6:])["choices"][0]["text"])
    assert "".join(pieces) == text_of(complete(server))
    with httpx.stream("POST", f"{server}/v1/completions", json=body | {"max_tokens": 200}) as response:
        next(response.iter_lines())
    assert "".join(pieces) == text_of(complete(server)), "the server goes on"


def test_vllms_own_metrics_count_the_drafts(server: str) -> None:
    import httpx

    complete(server, prompt="ab" * 20, max_tokens=64)
    lines = httpx.get(f"{server}/metrics", timeout=30).text.splitlines()
    counts = [
        sum(
            float(line.split()[-1]) for line in lines if line.startswith(f"vllm:spec_decode_num_{name}_total")
        )
        for name in ("accepted_tokens", "draft_tokens")
    ]
    assert 0 < counts[0] <= counts[1]
