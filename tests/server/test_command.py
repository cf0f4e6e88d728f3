"""``foredraft serve --engine embedded`` as a process: what it answers, how it ends, what it refuses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from letters import TOKENIZER
from openai_server import events, joined
from vllm_server import complete, free_port, text_of, wait_until_up
from vllm_toys import toy_folder

from foredraft.integration.config import Config
from foredraft.integration.embedded.build import build_engine, load_target
from foredraft.integration.sampling_params import SamplingParams

WAIT_S = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama over bytes, with its tokenizer."""
    folder = toy_folder(tmp_path_factory.mktemp("served"), vocab_size=257, num_layers=1, head_scale=0.5)
    TOKENIZER.save_pretrained(folder)
    return folder


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "foredraft.integration.cli", "serve", "--engine", "embedded", *arguments]


@contextmanager
def served(folder: Path, *arguments: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Address and process of a server of the toy model."""
    port = free_port()
    log = folder / "server.log"
    given = [
        str(folder),
        "--port",
        str(port),
        "--dtype",
        "float32",
        "--max-model-len",
        "256",
        "--device",
        "cpu",
    ]
    with log.open("w") as output:
        environment = os.environ | {"KEY_OF_TEST": "secret"}
        process = subprocess.Popen(command(*given, *arguments), stdout=output, stderr=output, env=environment)
        try:
            wait_until_up(f"http://127.0.0.1:{port}", process, log)
            yield f"http://127.0.0.1:{port}", process
        finally:
            process.kill()
            process.wait(WAIT_S)


def test_it_serves_the_engines_text_and_ends_with_sigterm(folder: Path) -> None:
    config = Config(model=str(folder), dtype="float32", device="cpu", proposer="none")
    engine = build_engine(config, load_target(config))
    expected = engine.generate(["abcabcabc"], SamplingParams(temperature=0, max_tokens=24))[0].outputs[0].text
    with served(folder, "--proposer", "ngram", "--served-model-name", "toy") as (address, process):
        assert text_of(complete(address)) == expected
        page = httpx.get(f"{address}/metrics", timeout=WAIT_S).text
        assert 'proposer="ngram"' in page
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0


def test_the_first_signal_lets_streams_finish_and_keys_are_asked_for(folder: Path) -> None:
    with served(folder, "--api-key-env", "KEY_OF_TEST", "--served-model-name", "toy") as (address, process):
        assert complete(address).status_code == 401
        asked = {"prompt": "abc", "temperature": 0, "max_tokens": 200, "stream": True, "ignore_eos": True}
        headers = {"Authorization": "Bearer secret"}
        with httpx.stream(
            "POST", f"{address}/v1/completions", json=asked, headers=headers, timeout=WAIT_S
        ) as answer:
            pieces = answer.iter_text()
            first = next(pieces)
            process.send_signal(signal.SIGINT)
            text = first + "".join(pieces)
        assert joined(events(text))
        assert events(text)[-1]["choices"][0]["finish_reason"] == "length"
        assert process.wait(WAIT_S) == 0


def test_a_second_signal_ends_it_at_once(folder: Path) -> None:
    with served(folder, "--max-num-seqs", "1") as (address, process):
        asked = {"prompt": ["abc"] * 64, "n": 8, "temperature": 1, "max_tokens": 200, "ignore_eos": True}
        thread = threading.Thread(target=_ignored, args=(f"{address}/v1/completions", asked))
        thread.start()
        while "open_prompts 64" not in httpx.get(f"{address}/metrics", timeout=WAIT_S).text:
            assert thread.is_alive()
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 128 + signal.SIGTERM
        thread.join(WAIT_S)


def _ignored(url: str, asked: dict[str, object]) -> None:
    with pytest.raises(httpx.TransportError):
        httpx.post(url, json=asked, timeout=WAIT_S)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--prt", "1"], "--prt"),
        (["--port", "many"], "--port"),
        (["--dtype", "int3"], "dtype"),
        (["--max-open-requests", "0"], "max_open_requests"),
        (["--api-key-env", "NOT_SET_HERE"], "NOT_SET_HERE"),
        (["--proposer", "vllm:ngram"], "--engine vllm"),
        (["--host", "300.1.1.1"], "--host"),
    ],
)
def test_a_mistake_is_one_line(folder: Path, arguments: Sequence[str], told: str) -> None:
    given = [str(folder), "--port", str(free_port()), *arguments]
    done = subprocess.run(command(*given), capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert told in done.stderr
    assert done.stderr.count("\n") == 1
