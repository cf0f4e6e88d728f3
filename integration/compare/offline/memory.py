"""What an engine holds in memory besides the target's weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import torch

from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.engine import Engine


def engine_bytes(engine: Engine) -> int | None:
    """Bytes of the tensors of its cache and its proposer: caches, and a draft's or a head's own weights.

    What the target's forward pass holds is shared by all engines of a comparison and not counted. ``None`` of
    other engines than ours, which keep their tensors to themselves.
    """
    if not isinstance(engine, EmbeddedEngine):
        return None
    shared = {_place(tensor) for tensor in _tensors(getattr(engine.decoder, "prepared", None), set())}
    own = {
        _place(tensor): _num_bytes(tensor) for tensor in _tensors([engine.decoder, engine.proposer], set())
    }
    return sum(num_bytes for place, num_bytes in own.items() if place not in shared)


def _tensors(value: Any, seen: set[int]) -> Iterator[torch.Tensor]:
    """Every tensor that can be reached through attributes, mappings and sequences."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        yield value
        return
    inner: Any = ()
    if isinstance(value, Mapping):
        inner = list(value.values())
    elif isinstance(value, (list, tuple)) and not all(isinstance(one, (int, float, str)) for one in value):
        inner = value
    elif hasattr(value, "__dict__") and not isinstance(value, (type, ModuleType)):
        inner = list(vars(value).values())
    for one in inner:
        yield from _tensors(one, seen)


def _place(tensor: torch.Tensor) -> int:
    """Which memory it lies in; tensors packed for oneDNN have no address and stand for themselves."""
    return id(tensor) if tensor.is_mkldnn else tensor.untyped_storage().data_ptr()


def _num_bytes(tensor: torch.Tensor) -> int:
    if tensor.is_mkldnn:
        return tensor.numel() * tensor.element_size()
    return tensor.untyped_storage().nbytes()
