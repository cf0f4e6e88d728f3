"""Every test here runs a real vLLM on the CPU; where none is installed, it is skipped with that reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from letters import TOKENIZER
from transformers import LlamaForCausalLM
from vllm_drafts import target_model
from vllm_server import serving
from vllm_toys import close, make_llm, run, toy_folder


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("vllm") and find_spec("vllm") is None:
            item.add_marker(pytest.mark.skip(reason="vllm is not installed (pip install foredraft[vllm])"))


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    """A target for models that draft."""
    return target_model()


@pytest.fixture(scope="module")
def folder(model: LlamaForCausalLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where it is saved."""
    folder = tmp_path_factory.mktemp("target")
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama with 97 tokens, in a folder."""
    return toy_folder(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def plain_run(toy: Path) -> Callable[..., list[list[int]]]:
    """Output tokens of a stock vLLM without speculation, which is closed again before the next is made."""

    def plain(prompts: Sequence[Sequence[int]], params: Any, **options: Any) -> list[list[int]]:
        llm = make_llm(toy, **options)
        try:
            return run(llm, prompts, params)
        finally:
            close(llm)

    return plain


@pytest.fixture
def open_llm(toy: Path) -> Iterator[Callable[..., Any]]:
    """Engines with the plugin on, closed at the end of the test."""
    opened = []

    def make(foredraft: dict[str, Any] | None = None, **options: Any) -> Any:
        opened.append(make_llm(toy, foredraft, **options))
        return opened[-1]

    yield make
    for llm in opened:
        close(llm)


@pytest.fixture(scope="session")
def served_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama over bytes, with its tokenizer."""
    folder = toy_folder(tmp_path_factory.mktemp("served"), vocab_size=257, num_layers=1, head_scale=0.5)
    TOKENIZER.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def server(served_folder: Path) -> Iterator[str]:
    """The address of a server that drafts with ngram."""
    config = served_folder / "ngram.yaml"
    config.write_text("proposer: ngram\nnum_draft_tokens: 5\nngram: {min_n: 1}\n")
    arguments = ["--config", str(config), "--per-request-spec-decode-metrics", "summary"]
    log = served_folder / "server.log"
    with serving(served_folder, [*arguments, "--enable-prompt-tokens-details"], log) as address:
        yield address
    assert "foredraft drafts with ngram" in log.read_text()


@pytest.fixture(scope="session")
def plain_server(served_folder: Path) -> Iterator[str]:
    """The same without speculation: a stock vLLM."""
    arguments = ["--proposer", "none", "--enable-prompt-tokens-details"]
    with serving(served_folder, arguments, served_folder / "plain.log") as address:
        yield address
