"""What runs where, and how far ahead."""

from foredraft.scheduler.goodput import AdaptiveDraftLength
from foredraft.scheduler.speculation import (
    Decision,
    DraftLengthController,
    DraftRequest,
    FixedDraftLength,
    StepReport,
)

__all__ = [
    "AdaptiveDraftLength",
    "Decision",
    "DraftLengthController",
    "DraftRequest",
    "FixedDraftLength",
    "StepReport",
]
