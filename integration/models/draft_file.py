"""The file of a trained draft or exit head: a few layers that live on their target.

One safetensors file. Its metadata say which target it was trained for; on another one it would only guess
badly, without any error, so loading checks that.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, Json, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from foredraft.integration.errors import UserError

FORMAT = "1"
DRAFT_FILE = "draft.safetensors"
EXIT_FILE = "exit_head.safetensors"
TRAINING_FILE = "settings.json"
"""In a folder where a training has begun; the draft comes at its end."""

HEAD_IDS = "head_ids"
HEAD_WEIGHT = "head.weight"


class _LayersConfig(BaseModel):
    """What must be there of transformers' config, beside what else is."""

    model_config = ConfigDict(extra="allow")

    model_type: str
    hidden_size: int = Field(ge=1)
    num_hidden_layers: int = Field(ge=1)


class _Metadata(BaseModel):
    """The texts in the file's header."""

    kind: str
    target: str
    target_fingerprint: str
    exit_layer: Json[Annotated[int, Field(ge=1, strict=True)]] | None = None
    reads_states: Literal["true", "false"]
    own_head: Literal["true", "false"]
    num_draft_tokens: int = Field(ge=1, le=32)
    config: Json[_LayersConfig]


@dataclass(frozen=True)
class DraftFile:
    """What is in the file.

    Attributes:
        kind: "draft" or "exit".
        target: name of the target it was trained for.
        target_fingerprint: ``fingerprint`` of that target.
        reads_states: whether it reads the target's last hidden states beside what else it reads.
        layers_config: transformers' config of its layers; ``num_hidden_layers`` says how many.
        tensors: weights, named as in ``train.student.Student``; ``head.weight`` [S, H] only where the
            target's head is not its embedding.
        head_ids: [S] int64, strictly increasing: the tokens it can draft.
        num_draft_tokens: how many tokens per step paid best when it was measured.
        exit_layer: of an exit head, after how many layers of the target it takes over.
    """

    kind: str
    target: str
    target_fingerprint: str
    reads_states: bool
    layers_config: dict[str, Any]
    tensors: dict[str, Tensor]
    head_ids: Tensor
    num_draft_tokens: int = 2
    exit_layer: int | None = None


def write_draft_file(path: Path, draft: DraftFile) -> None:
    """Write ``path`` whole or not at all.

    Raises:
        UserError: it cannot be written; the disk is full perhaps.
    """
    metadata = {
        "format": FORMAT,
        "kind": draft.kind,
        "target": draft.target,
        "target_fingerprint": draft.target_fingerprint,
        "reads_states": json.dumps(draft.reads_states),
        "own_head": json.dumps(HEAD_WEIGHT in draft.tensors),
        "num_draft_tokens": json.dumps(draft.num_draft_tokens),
        "config": json.dumps(draft.layers_config, sort_keys=True),
    }
    if draft.exit_layer is not None:
        metadata["exit_layer"] = json.dumps(draft.exit_layer)
    tensors = {name: tensor.contiguous() for name, tensor in draft.tensors.items()}
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        save_file(tensors | {HEAD_IDS: draft.head_ids}, temporary, metadata)
        temporary.replace(path)
    except (OSError, SafetensorError) as error:
        temporary.unlink(missing_ok=True)
        raise UserError(f"{path} cannot be written: {error}") from error


def is_draft_file(path: Path) -> bool:
    """Whether ``path`` is a trained draft, or a folder that holds one."""
    return os.path.isfile(path / DRAFT_FILE) or path.suffix == ".safetensors"


def check_finished(path: Path, option: str) -> None:
    """Refuse the folder of a training that has not come to its end.

    Raises:
        UserError: it has not.
    """
    finished = any(os.path.isfile(path / name) for name in (DRAFT_FILE, EXIT_FILE))
    if os.path.isfile(path / TRAINING_FILE) and not finished:
        raise UserError(f"{option}: the training in {path} is not finished; run its command again")


def read_draft_file(path: Path) -> DraftFile:
    """The trained draft of a file or of a folder that holds one.

    Raises:
        UserError: no such file, damaged, or of another kind.
    """
    return _read(_in_folder(path, DRAFT_FILE), "draft", "draft.model")


def read_exit_file(path: Path) -> DraftFile:
    """The trained exit head of a file or of a folder that holds one; its ``exit_layer`` is set.

    Raises:
        UserError: no such file, damaged, or of another kind.
    """
    path = _in_folder(path, EXIT_FILE)
    if not os.path.isfile(path):
        raise UserError(
            f"early_exit.head: {path} is not there; name a file or folder that `foredraft train exit` wrote"
        )
    return _read(path, "exit", "early_exit.head")


def _in_folder(path: Path, name: str) -> Path:
    # os.path: unlike pathlib's, it calls a path that cannot be looked at no folder, and does not raise
    return path / name if os.path.isdir(path) else path


def _read(path: Path, kind: str, option: str) -> DraftFile:
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except (OSError, SafetensorError) as error:
        raise UserError(f"{option}: {path} cannot be read: {error}") from None
    if metadata.get("format") != FORMAT or HEAD_IDS not in tensors:
        raise UserError(f"{option}: {path} was not written by `foredraft train` (format {FORMAT})")
    _check_tensors(path, tensors, option)
    try:
        found = _Metadata.model_validate(metadata)
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(map(str, fault["loc"]))
        raise UserError(f"{option}: {path}: its metadata are damaged: {where}: {fault['msg']}") from None
    if found.kind != kind:
        raise UserError(f"{option}: {path} holds weights of the kind {found.kind!r}, not {kind!r}")
    if (found.exit_layer is not None) != (kind == "exit"):
        raise UserError(f"{option}: {path}: its metadata are damaged: exit_layer: {found.exit_layer}")
    if found.own_head == "true" and HEAD_WEIGHT not in tensors:
        raise UserError(f"{option}: {path}: tensors are missing: {HEAD_WEIGHT}")
    head_ids = tensors.pop(HEAD_IDS)
    return DraftFile(
        kind=found.kind,
        target=found.target,
        target_fingerprint=found.target_fingerprint,
        reads_states=found.reads_states == "true",
        layers_config=found.config.model_dump(),
        tensors=tensors,
        head_ids=head_ids,
        num_draft_tokens=found.num_draft_tokens,
        exit_layer=found.exit_layer,
    )


def _check_tensors(path: Path, tensors: dict[str, Tensor], option: str) -> None:
    head_ids = tensors[HEAD_IDS]
    if head_ids.dtype != torch.int64 or head_ids.ndim != 1:
        raise UserError(f"{option}: {path}: {HEAD_IDS} is {head_ids.ndim}-d {head_ids.dtype}, not 1-d int64")
    for name, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise UserError(f"{option}: {path}: {name} has values that are not finite")
