"""What "auto" means for ``device`` and ``dtype`` on this machine."""

from __future__ import annotations

import torch

from foredraft.integration.config import Config
from foredraft.integration.errors import UserError


def resolve_device(config: Config) -> torch.device:
    """The device to run on.

    Raises:
        UserError: a GPU is asked for that is not there.
    """
    return named_device(config.device, "device")


def named_device(asked: str, option: str) -> torch.device:
    """The device that an option of the configuration asks for.

    Raises:
        UserError: a GPU is asked for that is not there.
    """
    num_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if asked == "auto":
        return torch.device("cuda:0" if num_gpus else "cpu")
    if asked == "cpu":
        return torch.device("cpu")
    index = int(asked.partition(":")[2] or 0)
    if index >= num_gpus:
        found = f"{num_gpus} found" if num_gpus else "no GPU that this PyTorch can use"
        raise UserError(f"{option}: {asked} is not there ({found}); use auto or cpu")
    return torch.device("cuda", index)


def resolve_dtype(config: Config, device: torch.device) -> torch.dtype:
    """The dtype of weights and activations.

    Raises:
        UserError: float16 on a CPU, where ``device: auto`` led.
    """
    return named_dtype(config.dtype, device, "dtype")


def named_dtype(asked: str, device: torch.device, option: str) -> torch.dtype:
    """The dtype that an option of the configuration asks for.

    Raises:
        UserError: float16 on a CPU.
    """
    if asked == "auto":
        return _fastest_dtype(device)
    dtype: torch.dtype = getattr(torch, asked)
    if device.type == "cpu" and dtype == torch.float16:
        raise UserError(f"{option}: float16 does not run on device cpu; use float32, bfloat16 or auto")
    return dtype


def _fastest_dtype(device: torch.device) -> torch.dtype:
    if device.type == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.bfloat16 if native else torch.float16
    return torch.bfloat16 if _cpu_has_bfloat16() else torch.float32


def _cpu_has_bfloat16() -> bool:
    """Whether oneDNN multiplies bfloat16 here; builds of PyTorch without oneDNN lack the operator."""
    try:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    except (AttributeError, RuntimeError):
        return False
