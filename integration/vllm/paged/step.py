"""What vLLM's runner has just read, and where it lies in the paged cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from torch import Tensor


class Step:
    """One pass of the target over B rows and T tokens, worked out as far as it is asked for.

    A proposer that needs token ids alone asks for nothing of it. Ask while ``propose_draft_token_ids`` runs:
    later vLLM fills the same buffers anew.

    Args:
        sampled: [B], the tokens that came out of the pass; none where a prompt is not yet read.
        num_verified: [B], drafted tokens among those it read.
        given: the arguments of the runner's ``propose_draft_token_ids``.

    Attributes:
        common: vLLM's ``CommonAttentionMetadata`` of the pass.
    """

    def __init__(
        self,
        runner: Any,
        sampled: Sequence[Sequence[int]],
        num_verified: Sequence[int],
        given: Mapping[str, Any],
    ) -> None:
        self.common = given["common_attn_metadata"]
        self._runner, self._sampled, self._num_verified = runner, sampled, num_verified
        self._hidden, self._at_exit = given["hidden_states"], given["aux_hidden_states"]

    @cached_property
    def first_places(self) -> list[int]:
        """[B + 1], where each row begins among the T tokens."""
        places: list[int] = self.common.query_start_loc_cpu.tolist()
        return places

    @cached_property
    def starts(self) -> list[int]:
        """[B], the position of each row's first scheduled token."""
        ends: list[int] = self.common.seq_lens_cpu_upper_bound.tolist()  # exact without async scheduling
        counts = [end - begin for begin, end in zip(self.first_places, self.first_places[1:], strict=False)]
        return [end - count for end, count in zip(ends, counts, strict=True)]

    @cached_property
    def kept(self) -> list[int]:
        """[B], how many of a row's scheduled tokens are committed: all but rejected drafts."""
        ends = self.first_places[1:]
        return [
            end - first - (drafted + 1 - len(tokens) if tokens else 0)
            for first, end, tokens, drafted in zip(
                self.first_places, ends, self._sampled, self._num_verified, strict=False
            )
        ]

    @cached_property
    def request_ids(self) -> list[str]:
        """[B]."""
        return list(self._runner.input_batch.req_ids)

    @property
    def is_plain(self) -> bool:
        """Whether it read one token of each request, and no drafts."""
        return self.first_places[-1] == len(self._sampled) and not any(self._num_verified)

    @property
    def block_size(self) -> int:
        """Positions of a block of the block table."""
        size: int = self._runner.input_batch.block_table[0].block_size
        return size

    @property
    def num_slots(self) -> int:
        """Of the whole paged cache."""
        cache = self._runner.kv_cache_config
        num_slots: int = cache.num_blocks * cache.kv_cache_groups[0].kv_cache_spec.block_size
        return num_slots

    @property
    def input_ids(self) -> Tensor:
        """[T]."""
        ids: Tensor = self._runner.input_ids.gpu[: self.first_places[-1]]
        return ids

    @cached_property
    def hidden(self) -> Tensor:
        """[T, H], after the target's final norm."""
        hidden: Tensor = self._hidden[: self.first_places[-1]]
        return hidden

    @cached_property
    def at_exit(self) -> Tensor | None:
        """[T, H], after its exit layer; ``None`` if nobody asked for them."""
        return self._at_exit[0][: self.first_places[-1]] if self._at_exit else None

    @property
    def positions(self) -> Tensor:
        """[T] int64."""
        positions: Tensor = self.common.positions[: self.first_places[-1]]
        return positions

    @property
    def slots(self) -> Tensor:
        """[T] int64, where the keys and values of the tokens lie."""
        slots: Tensor = self.common.slot_mapping[: self.first_places[-1]]
        return slots

    def slots_of(self, places: Tensor, positions: Tensor) -> Tensor:
        """[N] slots of ``positions`` [N] in the batch rows ``places`` [N]."""
        return slots_in(self.common.block_table_tensor, places, positions, self.block_size)


def slots_in(block_table: Tensor, rows: Tensor, positions: Tensor, block_size: int) -> Tensor:
    """[N] int64 slots of ``positions`` [N] in the rows ``rows`` [N] of a block table."""
    blocks = block_table[rows, positions // block_size].long()
    return blocks * block_size + positions % block_size
