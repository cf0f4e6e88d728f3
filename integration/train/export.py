"""Stage 5, the export: the file that ``proposer: draft`` or ``proposer: early_exit`` loads."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from foredraft.integration.models.draft_file import (
    DRAFT_FILE,
    EXIT_FILE,
    HEAD_WEIGHT,
    DraftFile,
    write_draft_file,
)
from foredraft.integration.train.settings import ExitSettings, TrainSettings
from foredraft.integration.train.student import Student
from foredraft.integration.train.target_parts import TargetParts


def export_student(
    folder: Path,
    settings: TrainSettings,
    student: Student,
    head_ids: Tensor,
    parts: TargetParts,
    num_draft_tokens: int = 1,
) -> None:
    """Write the student's weights in bfloat16, and the target's head rows if its embedding has not got them.

    Args:
        num_draft_tokens: how many tokens per step pay best.

    Raises:
        UserError: the disk is full.
    """
    weights = dict(student.state_dict())
    if not parts.tied:
        weights[HEAD_WEIGHT] = parts.head_weight[head_ids.to(parts.device)]
    file = DraftFile(
        kind=settings.kind,
        target=parts.name,
        target_fingerprint=parts.fingerprint,
        reads_states=student.reads_states,
        layers_config=parts.layers_config,
        tensors={name: tensor.detach().to(torch.bfloat16).cpu() for name, tensor in weights.items()},
        head_ids=head_ids.cpu(),
        num_draft_tokens=num_draft_tokens,
        exit_layer=settings.exit_layer if isinstance(settings, ExitSettings) else None,
    )
    write_draft_file(folder / (EXIT_FILE if settings.kind == "exit" else DRAFT_FILE), file)
