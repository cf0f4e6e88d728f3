"""What runs where, and how far ahead."""

from foredraft.scheduler.speculation import DraftLengthController, FixedDraftLength

__all__ = ["DraftLengthController", "FixedDraftLength"]
