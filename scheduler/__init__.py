"""What runs where, and how far ahead."""

from foredraft.scheduler.goodput import AdaptiveDraftLength
from foredraft.scheduler.members import Member
from foredraft.scheduler.speculation import (
    NO_LIMIT,
    Choice,
    Decision,
    DraftBatch,
    DraftLengthController,
    FixedDraftLength,
    StepReport,
)

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
