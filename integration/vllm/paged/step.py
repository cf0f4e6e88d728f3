"""What vLLM's runner has just read, and where it lies in the paged cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Step:
    """One pass of the target over B rows and T tokens.

    Attributes:
        common: vLLM's ``CommonAttentionMetadata`` of the pass.
        block_size: positions of a block of its block table.
        num_slots: of the whole paged cache.
        input_ids: [T].
        kept: [B], how many of a row's scheduled tokens are committed: all but rejected drafts.
        hidden: [T, H], after the target's final norm.
        at_exit: [T, H], after its exit layer; ``None`` if nobody asked for them.
    """

    common: Any
    block_size: int
    num_slots: int
    input_ids: Tensor
    kept: Sequence[int]
    hidden: Tensor
    at_exit: Tensor | None

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


def step_of(
    runner: Any, sampled: Sequence[Sequence[int]], num_verified: Sequence[int], given: Mapping[str, Any]
) -> Step:
    """The pass that a runner has made.

    Args:
        sampled: [B], the tokens that came out of it; none where a prompt is not yet read.
        num_verified: [B], drafted tokens among those it read.
        given: the arguments of the runner's ``propose_draft_token_ids``.
    """
    common = given["common_attn_metadata"]
    firsts = common.query_start_loc_cpu.tolist()
    kept = [
        end - first - (drafted + 1 - len(tokens) if tokens else 0)
        for first, end, tokens, drafted in zip(firsts, firsts[1:], sampled, num_verified, strict=False)
    ]
    at_exit, cache = given["aux_hidden_states"], runner.kv_cache_config
    return Step(
        common=common,
        block_size=runner.input_batch.block_table[0].block_size,
        num_slots=cache.num_blocks * cache.kv_cache_groups[0].kv_cache_spec.block_size,
        input_ids=runner.input_ids.gpu[: firsts[-1]],
        kept=kept,
        hidden=given["hidden_states"][: firsts[-1]],
        at_exit=at_exit[0][: firsts[-1]] if at_exit else None,
    )
