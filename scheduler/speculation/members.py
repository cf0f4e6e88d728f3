"""What drafts, as a controller knows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foredraft.scheduler.speculation.request_rows import Ints


@dataclass(frozen=True)
class Member:
    """One of the things a proposer drafts with; most proposers have one.

    Attributes:
        name: for messages.
        max_draft_tokens: the largest length it is given, 1 or more.
        num_prospects: see ``Proposer.num_prospects``.
        step_s: seconds of one drafting step, from a calibration; 0 = unknown, or next to nothing.
        most_unread: see ``Proposer.most_unread``.

    Raises:
        ValueError: ``max_draft_tokens`` below 1.
    """

    name: str
    max_draft_tokens: int
    num_prospects: int = 1
    step_s: float = 0.0
    most_unread: int | None = None

    def __post_init__(self) -> None:
        if type(self.max_draft_tokens) is not int or self.max_draft_tokens < 1:
            raise ValueError(
                f"max_draft_tokens must be a whole number, 1 or more, got {self.max_draft_tokens!r}"
            )


class Arms:
    """The arms (see ``acceptance``) of several members: arm 0, then those of each member in order.

    Attributes:
        member: [A] which member each belongs to; arm 0 counts to the first.
        most: [A] largest length; 0 for arm 0.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        counts = [member.num_prospects for member in members]
        self._before = np.cumsum([0, *counts[:-1]])
        self.member: Ints = np.concatenate([[0], np.repeat(np.arange(len(members)), counts)])
        self.most: Ints = np.concatenate(
            [[0], np.repeat([member.max_draft_tokens for member in members], counts)]
        )

    def by_member(self, of_arm: Sequence[int]) -> list[list[int]]:
        """[M][prospects + 1], from [A]; at 0, where nothing is offered, 0."""
        ends = [*self._before[1:].tolist(), len(self) - 1]
        return [
            [0, *of_arm[before + 1 : end + 1]]
            for before, end in zip(self._before.tolist(), ends, strict=True)
        ]

    def __len__(self) -> int:
        return len(self.member)

    def of(self, prospects: Sequence[Sequence[int]], num_requests: int) -> Ints:
        """[B, M]: the arm of each request and member, from ``DraftBatch.prospects``."""
        if not prospects:
            return np.broadcast_to(self._before + 1, (num_requests, len(self._before)))
        said = np.array(prospects, dtype=np.int64).reshape(len(self._before), num_requests).T
        return np.where(said > 0, self._before + said, 0)
