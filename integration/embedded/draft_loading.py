"""From a configuration to the small model of ``proposer: draft``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from foredraft.integration.config import Config
from foredraft.integration.devices import named_device, named_dtype
from foredraft.integration.embedded.draft_forward import DraftForward
from foredraft.integration.embedded.forward import ForwardPass, prepare_model
from foredraft.integration.embedded.target import Target
from foredraft.integration.errors import UserError
from foredraft.integration.models.draft_file import (
    DRAFT_FILE,
    DraftFile,
    check_finished,
    is_draft_file,
    read_draft_file,
)
from foredraft.integration.models.loading import load_model
from foredraft.integration.models.pretrained import models_with, pretrained
from foredraft.integration.models.vocabulary import check_same_vocabulary
from foredraft.integration.paths import user_path

MODEL_DRAFT_TOKENS = 4
"""For a whole model as draft: what its acceptance will be is not known."""


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


def load_draft(config: Config, target: Target) -> LoadedDraft:
    """The model of ``draft.model``, or the trained draft that comes with the target.

    Raises:
        UserError: there is none, it cannot be loaded, or it was made for another target or tokenizer.
    """
    name = config.draft.model
    if name is None:
        shipped = pretrained(target.name, DRAFT_FILE)
        if shipped is None:
            known = ", ".join(models_with(DRAFT_FILE)) or "no model"
            raise UserError(
                f"draft.model: none is given, and foredraft brings one for {known} only; name a small model, "
                f"or train one with `foredraft train draft`"
            )
        return _trained(shipped, config, target)
    path = user_path(name, "draft.model")
    check_finished(path, "draft.model")
    return _trained(path, config, target) if is_draft_file(path) else _model(name, config, target)


def _trained(path: Path, config: Config, target: Target) -> LoadedDraft:
    named = f"draft.model: {path}"
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


def check_made_for(draft: DraftFile, target: Target, named: str) -> None:
    """Refuse what was trained for another target.

    Args:
        named: option and file, for messages.

    Raises:
        UserError: it was, or its tokens are not the target's.
    """
    if draft.target_fingerprint != target.fingerprint:
        raise UserError(
            f"{named} was trained for {draft.target!r} (weights {draft.target_fingerprint[:8]}), "
            f"not for {target.name!r} (weights {target.fingerprint[:8]})"
        )
    ids = draft.head_ids.tolist()
    if not ids or ids != sorted(set(ids)) or ids[0] < 0 or ids[-1] >= target.vocab_size:
        raise UserError(f"{named}: head_ids are not increasing token ids below {target.vocab_size}")


def _model(name: str, config: Config, target: Target) -> LoadedDraft:
    """A whole model of its own. It may be padded to fewer or more tokens than the target."""
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


def _place(config: Config, target: Target) -> tuple[torch.device, torch.dtype]:
    """Device and dtype of the draft: the target's, unless its own options say otherwise."""
    own = config.draft
    device = target.device if own.device is None else named_device(own.device, "draft.device")
    if own.dtype is None and own.device is None:
        return device, target.dtype
    return device, named_dtype(own.dtype or "auto", device, "draft.dtype")
