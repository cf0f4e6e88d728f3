"""Hidden states as bytes, in the dtype they were computed in: numpy knows no bfloat16."""

from __future__ import annotations

import torch
from torch import Tensor

STATE_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def to_bytes(states: Tensor, dtype: str) -> bytes:
    """[N, H] -> its bytes."""
    flat = states.to("cpu", STATE_DTYPES[dtype]).contiguous().flatten()
    raw: bytes = flat.view(torch.uint8).numpy().tobytes()
    return raw


def from_bytes(raw: bytes, size: int, dtype: str) -> Tensor:
    """What ``to_bytes`` made, [N, ``size``]."""
    flat = torch.frombuffer(bytearray(raw), dtype=STATE_DTYPES[dtype])
    return flat.view(-1, size)
