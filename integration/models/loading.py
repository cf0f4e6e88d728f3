"""One entry for every way of naming a model."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from foredraft.integration.errors import UserError
from foredraft.integration.models.builtin import BUILTIN_MODEL, builtin_folder
from foredraft.integration.models.checkpoint import read_folder, read_gguf, read_tokenizer
from foredraft.integration.models.collector import collector_paused
from foredraft.integration.models.hub import hub_folder
from foredraft.integration.paths import user_path

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class LoadedModel:
    """A model in evaluation mode, without gradients. Without ``tokenizer`` it serves token ids only."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase | None
    name: str


def load_model(name: str, dtype: torch.dtype, device: torch.device) -> LoadedModel:
    """The causal language model called ``name``.

    Args:
        name: "smollm2-135m" (built in), a folder in transformers' layout, a ``.gguf`` file or a hub id.

    Raises:
        UserError: there is no such model, or it cannot be used; one line.
    """
    with collector_paused():
        model, tokenizer = _read(name, dtype)
    return LoadedModel(_place(model, device, name), tokenizer, name)


def eos_token_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> frozenset[int]:
    """The tokens that end an output; may be empty.

    Those of the model's generation config, or where it names none those of its config; and the tokenizer's.
    """
    generation = getattr(model, "generation_config", None)
    ids = _as_ids(getattr(generation, "eos_token_id", None))
    ids |= _as_ids(getattr(tokenizer, "eos_token_id", None))
    return ids or _as_ids(getattr(model.config.get_text_config(), "eos_token_id", None))


def model_folder(name: str) -> Path:
    """The folder of a model in transformers' layout: built in, given as a path, or of a hub id.

    Raises:
        UserError: there is no such folder.
    """
    if name == BUILTIN_MODEL:
        return builtin_folder()
    path = user_path(name, "model")
    if os.path.isdir(path):  # pathlib's would raise for a name that is too long, say
        return path
    if os.path.isfile(path):
        raise UserError(f"model: {path} is a file, needed is a folder in transformers' layout or a hub id")
    return hub_folder(name)


def _read(name: str, dtype: torch.dtype) -> tuple[PreTrainedModel, PreTrainedTokenizerBase | None]:
    path = user_path(name, "model")
    if name != BUILTIN_MODEL and os.path.isfile(path):
        return _from_file(path, dtype)
    return _from_folder(model_folder(name), dtype)


def _from_folder(folder: Path, dtype: torch.dtype) -> tuple[PreTrainedModel, PreTrainedTokenizerBase | None]:
    return read_folder(folder, dtype), read_tokenizer(folder)


def _from_file(path: Path, dtype: torch.dtype) -> tuple[PreTrainedModel, PreTrainedTokenizerBase | None]:
    if path.suffix != ".gguf":
        raise UserError(f"model: {path} is a file, but not a .gguf one; name a folder or a .gguf file")
    return read_gguf(path, dtype), read_tokenizer(path.parent, path.name)


def _place(model: PreTrainedModel, device: torch.device, name: str) -> PreTrainedModel:
    try:
        model = model.to(device)
    except torch.OutOfMemoryError:
        raise UserError(f"model: {name} does not fit into the memory of {device}") from None
    return model.eval().requires_grad_(False)


def _as_ids(value: Any) -> frozenset[int]:
    if value is None:
        return frozenset()
    return frozenset(value) if isinstance(value, Iterable) else frozenset({value})
