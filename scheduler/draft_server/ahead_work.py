"""A draft that is drawn before it is asked for, on the assumption that all of the last one is accepted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foredraft.proposers.compact_laws import DraftedRow


@dataclass
class AheadWork:
    """Of one request.

    Attributes:
        assumed: tokens that are assumed to follow the committed ones: the last draft, then the guessed bonus
            token, once there is one.
        wanted: tokens to draft after them.
        begun: whether the proposer has been told of the assumption.
        guessed: whether ``assumed`` is complete.
        ready: what was drafted.
    """

    assumed: list[int]
    wanted: int
    begun: bool = False
    guessed: bool = False
    ready: DraftedRow | None = None

    def num_right(self, committed: Sequence[int]) -> int:
        """How many of the assumed tokens came true, ``committed`` being what really followed."""
        for place, (assumed, token) in enumerate(zip(self.assumed, committed, strict=False)):
            if assumed != token:
                return place
        return min(len(self.assumed), len(committed))

    def came_true(self, committed: Sequence[int]) -> bool:
        """Whether the request stands exactly where the draft begins."""
        return self.ready is not None and self.assumed == list(committed)
