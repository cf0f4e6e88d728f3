"""From a configuration to the small model of ``proposer: draft``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from foredraft.integration.config import Config
from foredraft.integration.devices import named_device, named_dtype
from foredraft.integration.draft_lengths import MODEL_DRAFT_TOKENS
from foredraft.integration.embedded.draft_forward import DraftForward
from foredraft.integration.embedded.forward import ForwardPass, prepare_model
from foredraft.integration.embedded.target import Target
from foredraft.integration.errors import UserError
from foredraft.integration.models.draft_file import (
    check_finished,
    is_draft_file,
    read_draft_file,
)
from foredraft.integration.models.loading import load_model
from foredraft.integration.models.trained_for import DRAFT_OPTION, check_made_for, shipped_draft
from foredraft.integration.models.vocabulary import check_same_vocabulary
from foredraft.integration.paths import user_path


@dataclass(frozen=True)
class LoadedDraft:
    """A draft model that fits its target.

    Attributes:
        head_ids: see ``proposers.drafting.draft_tokens``.
        max_len: positions it can take.
        vocab_size: it reads token ids below this.
        reads_states: whether it reads the target's hidden states.
        num_draft_tokens: how many tokens per step pay best, as far as is known.
    """

    prepared: ForwardPass
    head_ids: Tensor | None
    max_len: int
    vocab_size: int
    reads_states: bool
    num_draft_tokens: int


class Beside(Protocol):
    """What a whole model has to know of the target it drafts for."""

    @property
    def tokenizer(self) -> Any | None:
        """``None`` = token ids only."""

    @property
    def vocab_size(self) -> int:
        """Token ids are below this."""

    @property
    def device(self) -> torch.device:
        """Where the draft runs, unless its options say otherwise."""

    @property
    def dtype(self) -> torch.dtype:
        """The draft's, unless its options say otherwise."""


def draft_file(config: Config, target_name: str) -> Path | None:
    """The trained draft that a configuration means; ``None`` where it names a whole model.

    Raises:
        UserError: none is named, and none comes with the target.
    """
    name = config.draft.model
    if name is None:
        return shipped_draft(target_name)
    path = user_path(name, DRAFT_OPTION)
    check_finished(path, DRAFT_OPTION)
    return path if is_draft_file(path) else None


def load_draft(config: Config, target: Target) -> LoadedDraft:
    """The model of ``draft.model``, or the trained draft that comes with the target.

    Raises:
        UserError: there is none, it cannot be loaded, or it was made for another target or tokenizer.
    """
    path = draft_file(config, target.name)
    return load_model_draft(config, target) if path is None else _trained(path, config, target)


def _trained(path: Path, config: Config, target: Target) -> LoadedDraft:
    named = f"{DRAFT_OPTION}: {path}"
    draft = read_draft_file(path)
    check_made_for(draft, target, named)
    device, dtype = _place(config, target)
    return LoadedDraft(
        prepared=DraftForward(draft, target.prepared, device, dtype, named),
        head_ids=draft.head_ids.to(device),
        max_len=target.max_len,
        vocab_size=target.vocab_size,
        reads_states=draft.reads_states,
        num_draft_tokens=draft.num_draft_tokens,
    )


def load_model_draft(config: Config, target: Beside) -> LoadedDraft:
    """The whole model that ``draft.model`` names. It may be padded to fewer or more tokens than the target.

    Raises:
        UserError: it cannot be loaded, or its tokens are not the target's.
    """
    name = config.draft.model
    assert name is not None, "a whole model has a name"
    device, dtype = _place(config, target)
    try:
        loaded = load_model(name, dtype, device)
        prepared = prepare_model(loaded.model)
    except UserError as error:
        raise UserError(f"draft.{error}" if str(error).startswith("model") else str(error)) from error
    check_same_vocabulary(target.tokenizer, loaded.tokenizer)
    model_config = loaded.model.config
    vocab_size: int = model_config.vocab_size
    shared = min(vocab_size, target.vocab_size)
    return LoadedDraft(
        prepared=prepared,
        head_ids=None if vocab_size == target.vocab_size else torch.arange(shared, device=device),
        max_len=model_config.max_position_embeddings,
        vocab_size=vocab_size,
        reads_states=False,
        num_draft_tokens=MODEL_DRAFT_TOKENS,
    )


def _place(config: Config, target: Beside) -> tuple[torch.device, torch.dtype]:
    """Device and dtype of the draft: the target's, unless its own options say otherwise."""
    own = config.draft
    device = target.device if own.device is None else named_device(own.device, "draft.device")
    if own.dtype is None and own.device is None:
        return device, target.dtype
    return device, named_dtype(own.dtype or "auto", device, "draft.dtype")
