"""From a configuration to the exit head of ``proposer: early_exit``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from foredraft.integration.config_sections import OWN_HEAD, EarlyExitOptions
from foredraft.integration.embedded.draft_loading import check_made_for
from foredraft.integration.embedded.exit_head import ExitHead, OwnHead, TrainedHead
from foredraft.integration.embedded.target import Target
from foredraft.integration.errors import UserError
from foredraft.integration.models.draft_file import EXIT_FILE, check_finished, read_exit_file
from foredraft.integration.models.pretrained import models_with, pretrained
from foredraft.integration.paths import user_path

OPTION = "early_exit.head"

OWN_HEAD_DRAFT_TOKENS = 4
"""For a model's own head: what its acceptance will be is not known."""


@dataclass(frozen=True)
class LoadedExit:
    """An exit head that fits its target.

    Attributes:
        head_ids: see ``proposers.drafting.draft_tokens``.
        reads_states: whether it reads the target's last hidden states.
        num_draft_tokens: how many tokens per step pay best, as far as is known.
    """

    head: ExitHead
    head_ids: Tensor | None
    reads_states: bool
    num_draft_tokens: int

    @property
    def trained_head(self) -> TrainedHead | None:
        """The head, if it has layers of its own."""
        return self.head if isinstance(self.head, TrainedHead) else None


def load_exit(options: EarlyExitOptions, target: Target) -> LoadedExit:
    """The exit head of ``early_exit.head``, or the one that comes with the target.

    Raises:
        UserError: there is none, it cannot be loaded, it was made for another target or layer, or the target
            cannot be left early.
    """
    reason = target.prepared.why_whole_depth_only
    if reason is not None:
        raise UserError(f"proposer: early_exit cannot draft with this model: {reason}")
    if options.head == OWN_HEAD:
        return _own(options.exit_layer, target)
    return _trained(_path(options.head, target), options.exit_layer, target)


def _path(name: str | None, target: Target) -> Path:
    if name is not None:
        return user_path(name, OPTION)
    shipped = pretrained(target.name, EXIT_FILE)
    if shipped is None:
        known = ", ".join(models_with(EXIT_FILE)) or "no model"
        raise UserError(
            f"{OPTION}: none is given, and foredraft brings one for {known} only; train one with "
            f"`foredraft train exit`, or say {OWN_HEAD!r} and an early_exit.exit_layer for a model that was "
            "trained to leave early"
        )
    return shipped


def _own(exit_layer: int | None, target: Target) -> LoadedExit:
    num_layers = target.prepared.num_layers
    assert exit_layer is not None, "the configuration asks for it"
    if exit_layer > num_layers:
        raise UserError(
            f"early_exit.exit_layer: the model can be left after 1 to {num_layers} layers, got {exit_layer}"
        )
    return LoadedExit(OwnHead(target.prepared, exit_layer), None, False, OWN_HEAD_DRAFT_TOKENS)


def _trained(path: Path, exit_layer: int | None, target: Target) -> LoadedExit:
    check_finished(path, OPTION)
    named = f"{OPTION}: {path}"
    file = read_exit_file(path)
    check_made_for(file, target, named)
    made_for, num_layers = file.exit_layer, target.prepared.num_layers
    assert made_for is not None, "read_exit_file saw to it"
    if exit_layer not in (None, made_for):
        raise UserError(f"early_exit.exit_layer: {path} was made for layer {made_for}, got {exit_layer}")
    if made_for >= num_layers:
        raise UserError(f"{named} leaves after layer {made_for}, the model has {num_layers}")
    head = TrainedHead(file, made_for, target.prepared, named)
    _check_cache(head, target, named)
    return LoadedExit(head, file.head_ids.to(target.device), file.reads_states, file.num_draft_tokens)


def _check_cache(head: TrainedHead, target: Target, named: str) -> None:
    """The head's keys and values share the target's cache: they must be of the same shape."""
    own = (head.num_kv_heads, head.head_dim)
    needed = (target.prepared.num_kv_heads, target.prepared.head_dim)
    if own != needed:
        raise UserError(f"{named}: {own} key heads and head size do not fit the model's {needed}")
