"""What trained layers have yet to read: tokens of steps without drafts wait, and are read together."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from foredraft.integration.vllm.paged.step import Step

MOST_WAITING = 32
"""Passes that wait at most. A call costs about as much for one of them as for all."""


@dataclass(frozen=True)
class Waiting:
    """T tokens, those of one pass after those of the other.

    Attributes:
        given: [T, H], see ``TrainedLayers.combined``.
        hidden: [T, H], the target's last hidden states.
        positions, slots: [T] int64.
        num_rows: B, tokens of a pass.
    """

    given: Tensor
    hidden: Tensor
    positions: Tensor
    slots: Tensor
    num_rows: int


class Backlog:
    """Passes over one token of each of the same requests.

    Others may read what is written to their blocks, through the prefix cache, and blocks change hands. Both
    happen only when a request comes or goes, and then nothing waits any longer. A pass with drafts does not
    wait: rejected tokens stand in slots that the next pass fills anew.
    """

    def __init__(self) -> None:
        self._request_ids: list[str] = []
        self._passes: list[tuple[Tensor, ...]] = []

    def __len__(self) -> int:
        return len(self._passes)

    def takes(self, step: Step) -> bool:
        """Whether the tokens of a pass can wait."""
        return step.is_plain and step.request_ids == self._request_ids

    def add(self, step: Step, given: Tensor) -> None:
        """Let them wait. Copied: vLLM uses its buffers again."""
        parts = (given, step.hidden, step.positions, step.slots)
        self._passes.append(tuple(part.clone() for part in parts))

    def read_at_once(self, step: Step) -> None:
        """A pass that did not wait: those after it may, while it is of the same requests."""
        self._request_ids = step.request_ids

    def take(self) -> Waiting:
        """All that waits; at least one pass."""
        passes, self._passes = self._passes, []
        given, hidden, positions, slots = (torch.cat(part) for part in zip(*passes, strict=True))
        return Waiting(given, hidden, positions, slots, len(self._request_ids))
