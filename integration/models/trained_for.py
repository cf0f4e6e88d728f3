"""Which trained file drafts for a model, and whether it was made for it."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from foredraft.integration.config_sections import OWN_HEAD
from foredraft.integration.errors import UserError
from foredraft.integration.models.draft_file import DRAFT_FILE, EXIT_FILE, DraftFile
from foredraft.integration.models.pretrained import models_with, pretrained
from foredraft.integration.paths import user_path

DRAFT_OPTION = "draft.model"
EXIT_OPTION = "early_exit.head"


class TargetIdentity(Protocol):
    """Which model and weights something was trained for."""

    @property
    def name(self) -> str:
        """As the user calls it."""

    @property
    def fingerprint(self) -> str:
        """See ``models.fingerprint``."""

    @property
    def vocab_size(self) -> int:
        """Its token ids are below this."""


def shipped_draft(target: str) -> Path:
    """The draft that comes with the target of this name.

    Raises:
        UserError: there is none.
    """
    shipped = pretrained(target, DRAFT_FILE)
    if shipped is None:
        raise UserError(
            f"{DRAFT_OPTION}: none is given, and foredraft brings one for {_known(DRAFT_FILE)} only; name a "
            "small model, or train one with `foredraft train draft`"
        )
    return shipped


def exit_head_path(name: str | None, target: str) -> Path:
    """The exit head called ``name``, or the one that comes with the target.

    Raises:
        UserError: there is none.
    """
    if name is not None:
        return user_path(name, EXIT_OPTION)
    shipped = pretrained(target, EXIT_FILE)
    if shipped is None:
        raise UserError(
            f"{EXIT_OPTION}: none is given, and foredraft brings one for {_known(EXIT_FILE)} only; train one "
            f"with `foredraft train exit`, or say {OWN_HEAD!r} and an early_exit.exit_layer for a model that "
            "was trained to leave early"
        )
    return shipped


def check_made_for(draft: DraftFile, target: TargetIdentity, named: str) -> None:
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


def exit_layer_of(file: DraftFile, path: Path, asked: int | None, num_layers: int) -> int:
    """The layer an exit head was made for.

    Raises:
        UserError: the user asks for another one, or the model has no such layer.
    """
    made_for = file.exit_layer
    assert made_for is not None, "read_exit_file saw to it"
    if asked not in (None, made_for):
        raise UserError(f"early_exit.exit_layer: {path} was made for layer {made_for}, got {asked}")
    if made_for >= num_layers:
        raise UserError(f"{EXIT_OPTION}: {path} leaves after layer {made_for}, the model has {num_layers}")
    return made_for


def check_own_exit(exit_layer: int | None, num_layers: int) -> int:
    """The layer after which the model's own head takes over.

    Raises:
        UserError: the model has no such layer.
    """
    assert exit_layer is not None, "the configuration asks for it"
    if exit_layer > num_layers:
        raise UserError(
            f"early_exit.exit_layer: the model can be left after 1 to {num_layers} layers, got {exit_layer}"
        )
    return exit_layer


def _known(file_name: str) -> str:
    return ", ".join(models_with(file_name)) or "no model"
