"""The target's last hidden states of committed tokens, beside the blocks of the paged cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from foredraft.integration.vllm.paged.step import Step
from foredraft.proposers.decoder import to_device


class PagedStates:
    """One state for every ``width`` slots of a block: that of the newest committed token among them.

    With the width of a block that is all an exit head reads: the state of a request's newest position, and
    after a prefix-cache hit that of the last position of the last block, whoever computed it. With width 1
    every state is kept. As with keys and values, nothing is cleared.

    Args:
        width: ``None`` = a block.
    """

    def __init__(self, width: int | None) -> None:
        self._width = width
        self._states: Tensor | None = None
        self._step: Step | None = None
        self._places: Mapping[int, int] = {}

    def begin(self, step: Step, places: Mapping[int, int]) -> None:
        """What ``read`` is about from now on: ``places`` are the batch rows of the proposer's rows."""
        self._step, self._places = step, places

    def write(self, step: Step) -> None:
        """Keep the states of the tokens that a pass read and that are committed."""
        states, width = self._allocated(step)
        kept = [
            first + offset
            for first, start, count in zip(step.first_places, step.starts, step.kept, strict=False)
            for offset in range(count)
            if offset == count - 1 or (start + offset + 1) % width == 0
        ]
        where = to_device(kept, states.device)
        states.index_copy_(0, step.slots[where] // width, step.hidden[where])

    def write_passes(self, slots: Tensor, hidden: Tensor, num_rows: int) -> None:
        """The same for passes over one token of each of ``num_rows`` rows, one after the other.

        Args:
            slots: [T] int64.
            hidden: [T, H].
        """
        assert self._states is not None, "before goes before"
        assert self._width is not None, "it was allocated"
        # The newest of each row, and before it those that are the last of their block: no place comes twice.
        wanted = slots % self._width == self._width - 1
        wanted[-num_rows:] = True
        where = wanted.nonzero().squeeze(1)
        self._states.index_copy_(0, slots[where] // self._width, hidden[where])

    def before(self, step: Step) -> Tensor:
        """[T, H], of each token that a pass read the state one position before, zeros before the text.

        To be called before ``write``: of a row's first token it was kept by an earlier pass.
        """
        before = step.hidden.roll(1, dims=0)
        rows = range(len(step.starts))
        before[to_device(step.first_places[:-1], before.device)] = self._at(
            step, rows, [start - 1 for start in step.starts]
        )
        return before

    def read(self, rows: Sequence[int], starts: Sequence[int], counts: Sequence[int]) -> Tensor:
        """See ``proposers.decoder.HiddenStates``."""
        assert self._step is not None, "begin goes before"
        places = [self._places[row] for row, count in zip(rows, counts, strict=True) for _ in range(count)]
        positions = [
            position
            for start, count in zip(starts, counts, strict=True)
            for position in range(start, start + count)
        ]
        return self._at(self._step, places, positions)

    def _at(self, step: Step, places: Sequence[int], positions: Sequence[int]) -> Tensor:
        kept, width = self._allocated(step)
        device = kept.device
        where = to_device([max(position, 0) for position in positions], device)
        states = kept[step.slots_of(to_device(places, device), where) // width]
        if min(positions) < 0:
            outside = [number for number, position in enumerate(positions) if position < 0]
            states[to_device(outside, device)] = 0
        return states

    def _allocated(self, step: Step) -> tuple[Tensor, int]:
        """[slots // width, H], and the width; vLLM plans its cache after it has loaded the models."""
        self._width = self._width or step.block_size
        if self._states is None:
            self._states = step.hidden.new_zeros((step.num_slots // self._width, step.hidden.shape[1]))
        return self._states, self._width
