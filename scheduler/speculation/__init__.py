"""How far to draft: the controller of draft lengths."""

from foredraft.scheduler.speculation.contract import (
    NO_LIMIT,
    Choice,
    Decision,
    DraftBatch,
    DraftLengthController,
    FixedDraftLength,
    StepReport,
)
from foredraft.scheduler.speculation.goodput import AdaptiveDraftLength
from foredraft.scheduler.speculation.members import Member

__all__ = [
    "NO_LIMIT",
    "AdaptiveDraftLength",
    "Choice",
    "Decision",
    "DraftBatch",
    "DraftLengthController",
    "FixedDraftLength",
    "Member",
    "StepReport",
]
