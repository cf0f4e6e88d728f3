import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from toys import byte_tokenizer, toy_model
from transformers import PreTrainedTokenizerFast

from foredraft.integration.config import Config
from foredraft.integration.train.samples import Sample, append_samples

TOY_VOCAB = 257
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'][0] }}:{{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}a:{% endif %}"
)


def save_toy(folder: Path, num_layers: int) -> Path:
    """One token in sixteen ends a text, so that texts are short."""
    model = toy_model(num_layers, TOY_VOCAB)
    model.generation_config.eos_token_id = list(range(0, TOY_VOCAB, 16))
    model.save_pretrained(folder)
    byte_tokenizer(CHAT_TEMPLATE).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def toy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chat model of two layers."""
    return save_toy(tmp_path_factory.mktemp("toy"), num_layers=2)


@pytest.fixture(scope="session")
def bigram_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that can be learned from little text: its law is sharp and hangs on the last token alone."""
    folder = tmp_path_factory.mktemp("bigram")
    model = toy_model(num_layers=2, vocab_size=TOY_VOCAB)
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight.zero_()
    model.lm_head.weight.mul_(4.0)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def deep_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of four layers, to be left early."""
    return save_toy(tmp_path_factory.mktemp("deep"), num_layers=4)


@pytest.fixture
def deep_config(deep_folder: Path) -> Config:
    return Config(model=str(deep_folder), dtype="float32", device="cpu")


@pytest.fixture
def chat_tokenizer() -> PreTrainedTokenizerFast:
    """One token per byte, and the chat template of ``toy_folder``."""
    return byte_tokenizer(CHAT_TEMPLATE)


@pytest.fixture
def toy_config(toy_folder: Path) -> Config:
    return Config(model=str(toy_folder), dtype="float32", device="cpu")


@pytest.fixture
def random_samples() -> Callable[..., list[Sample]]:
    """Texts of random tokens; those with an index that is a multiple of 40 are held out."""

    def make(count: int = 81, longest: int = 40, vocab_size: int = TOY_VOCAB) -> list[Sample]:
        generator = torch.Generator().manual_seed(0)
        samples = []
        for index in range(count):
            length = int(torch.randint(8, longest + 1, (1,), generator=generator))
            ids = torch.randint(0, vocab_size, (length,), generator=generator).tolist()
            samples.append(Sample(index, ids, prompt_len=4, loss_start=2))
        return samples

    return make


@pytest.fixture
def run_folder(tmp_path: Path, random_samples: Callable[..., list[Sample]]) -> Callable[..., Path]:
    """A training folder whose data is there already."""

    def make(name: str = "run", vocab_size: int = TOY_VOCAB) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        append_samples(folder / "written.jsonl", random_samples(vocab_size=vocab_size))
        return folder

    return make


@pytest.fixture
def write_lines(tmp_path: Path) -> Callable[..., str]:
    """A JSONL file of rows; a text is written as it is."""

    def write(*rows: Any, name: str = "data.jsonl") -> str:
        path = tmp_path / name
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return str(path)

    return write
