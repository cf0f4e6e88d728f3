"""What trained layers have yet to read: tokens of steps without drafts wait, and are read together."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from foredraft.integration.vllm.paged.states import PagedStates
from foredraft.integration.vllm.paged.step import Step

MOST_WAITING = 32
"""Passes that wait at most. A call costs about as much for one of them as for all."""

MOST_TOKENS = 128
"""Tokens that wait at most. For more a call is no cheaper, and vLLM plans no memory for them."""


@dataclass(frozen=True)
class Waiting:
    """T tokens, those of one pass after those of the other.

    Attributes:
        given: [T, H], see ``TrainedLayers.combined``.
        hidden, before: [T, H], the target's last hidden states, and those one position before each token;
            only for layers that read states.
        positions, slots: [T] int64.
        num_rows: B, tokens of a pass.
    """

    given: Tensor
    hidden: Tensor | None
    before: Tensor | None
    positions: Tensor
    slots: Tensor
    num_rows: int


class Backlog:
    """Passes over one token of each of the same requests.

    Others may read what is written to their blocks, through the prefix cache, and blocks change hands. Both
    happen only when a request comes or goes, and then nothing waits any longer. A pass with drafts does not
    wait: rejected tokens stand in slots that the next pass fills anew.

    Args:
        states: the target's last hidden states, for layers that read them.
    """

    def __init__(self, states: PagedStates | None) -> None:
        self._states = states
        self._before: Tensor | None = None  # one position before the first pass that waits
        self._request_ids: list[str] = []
        self._ends: list[int] = []  # of each request the position after what was read or waits
        self._passes: list[tuple[Tensor, ...]] = []

    def __len__(self) -> int:
        return len(self._passes)

    @property
    def is_full(self) -> bool:
        """Whether what waits is to be read now."""
        return len(self) >= MOST_WAITING or (len(self) + 1) * len(self._request_ids) > MOST_TOKENS

    def takes(self, step: Step) -> bool:
        """Whether the tokens of a pass can wait: it goes on where the last one ended."""
        fits = len(step.request_ids) <= MOST_TOKENS
        return fits and step.is_plain and step.request_ids == self._request_ids and step.starts == self._ends

    def add(self, step: Step, given: Tensor) -> None:
        """Let them wait. Copied: vLLM uses its buffers again."""
        if self._states is not None and not self._passes:
            self._before = self._states.before(step)
        parts = [given, step.positions, step.slots, *([] if self._states is None else [step.hidden])]
        self._passes.append(tuple(part.clone() for part in parts))
        self._ends = [end + 1 for end in self._ends]

    def read_at_once(self, step: Step) -> None:
        """A pass that did not wait: those after it may, while it is of the same requests."""
        self._request_ids = step.request_ids
        self._ends = [start + count for start, count in zip(step.starts, step.kept, strict=False)]

    def take(self) -> Waiting:
        """All that waits; at least one pass."""
        passes, self._passes = self._passes, []
        given, positions, slots, *states = (torch.cat(part) for part in zip(*passes, strict=True))
        num_rows, hidden, before = len(self._request_ids), None, None
        if self._before is not None:
            (hidden,) = states
            before = torch.cat([self._before, hidden[:-num_rows]])
        return Waiting(given, hidden, before, positions, slots, num_rows)
