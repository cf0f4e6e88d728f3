"""How many tokens each request may draft in the next step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from foredraft.proposers import Outcome


class DraftLengthController(ABC):
    """Chooses draft lengths before a step and learns from it afterwards.

    Attributes:
        max_draft_tokens: the largest length it chooses.
    """

    max_draft_tokens: int

    @abstractmethod
    def draft_lengths(self, rooms: Sequence[int]) -> list[int]:
        """One length per request, 0 = do not draft.

        ``rooms`` is how many draft tokens each request could still use before its ``max_tokens`` or the
        context limit; 0 or less where there is none.
        """

    @abstractmethod
    def observe(self, outcomes: Sequence[Outcome], step_time_s: float) -> None:
        """Learn what a step brought and how many seconds it took."""


class FixedDraftLength(DraftLengthController):
    """The same length always, cut to each request's room.

    Raises:
        ValueError: ``num_draft_tokens`` is not a whole number, 0 or more.
    """

    def __init__(self, num_draft_tokens: int) -> None:
        if type(num_draft_tokens) is not int or num_draft_tokens < 0:
            raise ValueError(f"num_draft_tokens must be a whole number, 0 or more, got {num_draft_tokens!r}")
        self.max_draft_tokens = num_draft_tokens

    def draft_lengths(self, rooms: Sequence[int]) -> list[int]:
        return [min(self.max_draft_tokens, max(room, 0)) for room in rooms]

    def observe(self, outcomes: Sequence[Outcome], step_time_s: float) -> None:
        """A fixed length learns nothing."""
