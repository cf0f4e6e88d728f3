"""What "auto" becomes. The hardware is faked: every machine must pass."""

from __future__ import annotations

import pytest
import torch

from foredraft.integration import devices
from foredraft.integration.config import Config
from foredraft.integration.devices import resolve_device, resolve_dtype
from foredraft.integration.errors import UserError

CPU, GPU = torch.device("cpu"), torch.device("cuda:0")


def fake_gpus(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


@pytest.mark.parametrize(
    ("asked", "got"), [("auto", "cuda:0"), ("cpu", "cpu"), ("cuda", "cuda:0"), ("cuda:1", "cuda:1")]
)
def test_device_with_two_gpus(monkeypatch: pytest.MonkeyPatch, asked: str, got: str) -> None:
    fake_gpus(monkeypatch, 2)
    assert str(resolve_device(Config(device=asked))) == got


def test_auto_without_gpu_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_gpus(monkeypatch, 0)
    assert resolve_device(Config()) == CPU


@pytest.mark.parametrize(("count", "asked", "said"), [(0, "cuda", "no GPU"), (2, "cuda:2", "2 found")])
def test_absent_gpu_is_refused(monkeypatch: pytest.MonkeyPatch, count: int, asked: str, said: str) -> None:
    fake_gpus(monkeypatch, count)
    with pytest.raises(UserError, match=f"device: {asked} is not there .*{said}"):
        resolve_device(Config(device=asked))


@pytest.mark.parametrize(("fast", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_auto_dtype_on_cpu(monkeypatch: pytest.MonkeyPatch, fast: bool, dtype: torch.dtype) -> None:
    monkeypatch.setattr(devices, "_cpu_has_bfloat16", lambda: fast)
    assert resolve_dtype(Config(), CPU) == dtype


@pytest.mark.parametrize(("fast", "dtype"), [(True, torch.bfloat16), (False, torch.float16)])
def test_auto_dtype_on_gpu(monkeypatch: pytest.MonkeyPatch, fast: bool, dtype: torch.dtype) -> None:
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation: fast and not including_emulation
    )
    assert resolve_dtype(Config(), GPU) == dtype


def test_named_dtype_is_taken() -> None:
    assert resolve_dtype(Config(dtype="float32"), CPU) == torch.float32
    assert resolve_dtype(Config(dtype="float16"), GPU) == torch.float16


def test_float16_is_refused_where_auto_led_to_the_cpu() -> None:
    with pytest.raises(UserError, match="float16 does not run on device cpu"):
        resolve_dtype(Config(dtype="float16"), CPU)


def test_pytorch_without_onednn_has_no_fast_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.ops, "mkldnn", object())
    assert devices._cpu_has_bfloat16() is False
