"""Reading a local checkpoint with transformers, and saying in one line why it cannot be used."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING, AutoModelForCausalLM, AutoTokenizer

from foredraft.integration.errors import UserError
from foredraft.integration.models.quiet import quiet

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
    "tekken.json",
)
CAUSAL_HEADS = ("CausalLM", "LMHeadModel", "ForConditionalGeneration")
MAX_NAMES = 3


def read_folder(folder: Path, dtype: torch.dtype) -> PreTrainedModel:
    """The causal language model of a folder in transformers' layout, on the CPU.

    Raises:
        UserError: not such a folder, unknown or other kind of model, damaged or incomplete weights.
    """
    _check_architecture(folder)
    return _read(folder, folder, dtype)


def read_gguf(path: Path, dtype: torch.dtype) -> PreTrainedModel:
    """The model of a GGUF file, its weights expanded to ``dtype``, on the CPU.

    Raises:
        UserError: no GGUF that transformers reads, damaged or incomplete weights.
    """
    model = _read(path, path.parent, dtype, gguf_file=path.name)
    # Left over from reading; they would keep the model from being saved or moved like any other.
    del model.config.quantization_config
    model.hf_quantizer = None
    return model


def read_tokenizer(folder: Path, gguf_file: str | None = None) -> PreTrainedTokenizerBase | None:
    """The tokenizer of a folder or GGUF file; ``None`` if a folder has no file of one.

    Raises:
        UserError: its files cannot be read.
    """
    if gguf_file is None and not any((folder / name).is_file() for name in TOKENIZER_FILES):
        return None
    try:
        with quiet():
            return AutoTokenizer.from_pretrained(folder, gguf_file=gguf_file, trust_remote_code=False)
    except Exception as error:  # transformers raises many kinds for bad files
        raise UserError(f"model: the tokenizer of {folder} cannot be read: {_reason(error)}") from error


def _check_architecture(folder: Path) -> None:
    """Refuse early what transformers would refuse at length."""
    config = _read_config(folder)
    kind, heads = config.get("model_type"), config.get("architectures") or []
    if kind is None:
        raise UserError(f"model: {folder}: config.json names no model_type; not a transformers model")
    if kind not in CONFIG_MAPPING:
        raise UserError(f"model: {folder}: unknown architecture {kind!r}; this transformers cannot build it")
    has_causal_head = not heads or any(str(head).endswith(CAUSAL_HEADS) for head in heads)
    if CONFIG_MAPPING[kind] not in MODEL_FOR_CAUSAL_LM_MAPPING or not has_causal_head:
        named = ", ".join(map(str, heads)) or kind
        raise UserError(f"model: {folder}: {named} is not a causal language model")


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        raise UserError(f"model: {folder}: not a model folder, it has no config.json")
    try:
        config = json.loads(path.read_bytes())
    except ValueError as error:
        raise UserError(f"model: {path}: not valid JSON: {_reason(error)}") from None
    if not isinstance(config, dict):
        raise UserError(f"model: {path}: needs a mapping")
    return config


def _read(source: Path, folder: Path, dtype: torch.dtype, gguf_file: str | None = None) -> PreTrainedModel:
    try:
        with quiet():
            model, report = AutoModelForCausalLM.from_pretrained(
                folder,
                gguf_file=gguf_file,
                dtype=dtype,
                local_files_only=True,
                trust_remote_code=False,
                ignore_mismatched_sizes=True,  # reported below, by name
                output_loading_info=True,
            )
    except Exception as error:  # transformers raises many kinds for bad files
        raise UserError(f"model: {source} cannot be loaded: {_reason(error)}") from error
    if report["missing_keys"]:
        raise UserError(f"model: {source}: tensors are missing: {_some(report['missing_keys'])}")
    if report["mismatched_keys"]:
        names = (
            f"{name} {tuple(found)} not {tuple(need)}" for name, found, need in report["mismatched_keys"]
        )
        raise UserError(f"model: {source}: tensors do not fit config.json: {_some(names)}")
    return model


def _some(names: Iterable[str]) -> str:
    listed = sorted(names)
    more = f" and {len(listed) - MAX_NAMES} more" if len(listed) > MAX_NAMES else ""
    return ", ".join(listed[:MAX_NAMES]) + more


def _reason(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
