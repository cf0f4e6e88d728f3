"""From a configuration to the exit head of ``proposer: early_exit``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from foredraft.integration.config_sections import OWN_HEAD, EarlyExitOptions
from foredraft.integration.draft_lengths import MODEL_DRAFT_TOKENS
from foredraft.integration.embedded.exit_head import ExitHead, OwnHead, TrainedHead
from foredraft.integration.embedded.target import Target
from foredraft.integration.errors import UserError
from foredraft.integration.models.draft_file import check_finished, read_exit_file
from foredraft.integration.models.trained_for import (
    EXIT_OPTION,
    check_made_for,
    check_own_exit,
    exit_head_path,
    exit_layer_of,
)


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
    return _trained(exit_head_path(options.head, target.name), options.exit_layer, target)


def _own(exit_layer: int | None, target: Target) -> LoadedExit:
    exit_layer = check_own_exit(exit_layer, target.prepared.num_layers)
    return LoadedExit(OwnHead(target.prepared, exit_layer), None, False, MODEL_DRAFT_TOKENS)


def _trained(path: Path, exit_layer: int | None, target: Target) -> LoadedExit:
    check_finished(path, EXIT_OPTION)
    named = f"{EXIT_OPTION}: {path}"
    file = read_exit_file(path)
    check_made_for(file, target, named)
    made_for = exit_layer_of(file, path, exit_layer, target.prepared.num_layers)
    head = TrainedHead(file, made_for, target.prepared, named)
    _check_cache(head, target, named)
    return LoadedExit(head, file.head_ids.to(target.device), file.reads_states, file.num_draft_tokens)


def _check_cache(head: TrainedHead, target: Target, named: str) -> None:
    """The head's keys and values share the target's cache: they must be of the same shape."""
    own = (head.num_kv_heads, head.head_dim)
    needed = (target.prepared.num_kv_heads, target.prepared.head_dim)
    if own != needed:
        raise UserError(f"{named}: {own} key heads and head size do not fit the model's {needed}")
