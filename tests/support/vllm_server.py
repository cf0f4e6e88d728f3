"""``foredraft serve`` as a process of its own, and what a client asks of it."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROMPT = "abcabcabc"
NO_ENVIRONMENT: dict[str, str] = {}


@contextmanager
def serving(
    folder: Path, arguments: Sequence[str], log: Path, environment: Mapping[str, str] = NO_ENVIRONMENT
) -> Iterator[str]:
    """The address of a server whose engine core is a process of its own; it logs to ``log``.

    Args:
        folder: of the model, served as "toy".
    """
    port = free_port()
    command = [sys.executable, "-m", "foredraft.integration.cli", "serve", str(folder), "--port", str(port)]
    command += ["--dtype", "float32", "--enforce-eager", "--max-model-len", "256", "--max-num-seqs", "8"]
    # Else a random model writes spaces between the words of a schema until its tokens are used up.
    command += ["--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}']
    command += ["--served-model-name", "toy", *arguments]
    whole = os.environ | {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_LOGGING_LEVEL": "INFO"} | environment
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=whole, cwd=folder)
        try:
            wait_until_up(f"http://127.0.0.1:{port}", process, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(60)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


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
    """The response to a completion of ``PROMPT``, greedy unless said."""
    import httpx

    body = {"model": "toy", "prompt": PROMPT, "temperature": 0, "max_tokens": 24} | options
    return httpx.post(f"{server}/v1/completions", json=body, timeout=120)


def text_of(response: Any) -> str:
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["text"])


def metrics(server: str, prefix: str = "foredraft_") -> dict[str, float]:
    """Samples of /metrics as "name" or 'name{position="0"}' -> value; other labels are left out."""
    import httpx

    found: dict[str, float] = {}
    for line in httpx.get(f"{server}/metrics", timeout=30).text.splitlines():
        if line.startswith(prefix):
            name, value = line.rsplit(" ", 1)
            position = re.search(r'position="\d+"', name)
            short = name.partition("{")[0] + (f"{{{position[0]}}}" if position else "")
            found[short] = found.get(short, 0.0) + float(value)
    return found
