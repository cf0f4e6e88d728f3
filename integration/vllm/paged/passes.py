"""Attention metadata for drafting passes over the rows of vLLM's batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from vllm.forward_context import set_forward_context
from vllm.v1.attention.backend import CommonAttentionMetadata

from foredraft.integration.vllm.paged.step import Step, slots_in
from foredraft.proposers.decoder import Tokens, follows, to_device


@dataclass(frozen=True)
class Pass:
    """Where the T tokens of a pass over R rows lie.

    Attributes:
        positions, slots: [T] int64.
        seq_lens: [R] int32, positions of each row after the pass; ``longest`` is the largest of them.
        row_of_token: [T] int64.
        block_table: [R, blocks] int32.
        query_starts: [R + 1] int32, where each row begins; on the device and on the host.
    """

    positions: Tensor
    slots: Tensor
    seq_lens: Tensor
    longest: int
    row_of_token: Tensor
    block_table: Tensor
    query_starts: tuple[Tensor, Tensor]
    max_query_len: int

    def common(self) -> CommonAttentionMetadata:
        """As vLLM's metadata builders take it."""
        on_device, on_host = self.query_starts
        num_rows = len(self.seq_lens)
        return CommonAttentionMetadata(
            query_start_loc=on_device,
            query_start_loc_cpu=on_host,
            seq_lens=self.seq_lens,
            num_reqs=num_rows,
            num_actual_tokens=len(self.positions),
            max_query_len=self.max_query_len,
            max_seq_len=self.longest,
            block_table_tensor=self.block_table,
            slot_mapping=self.slots,
            positions=self.positions,
            seq_lens_cpu_upper_bound=torch.full((num_rows,), self.longest, dtype=torch.int32),
        )

    def following(self, block_size: int) -> Pass:
        """The pass over one token more of each row, after a pass over one token of each."""
        positions = self.positions + 1
        return replace(
            self,
            positions=positions,
            slots=slots_in(self.block_table, self.row_of_token, positions, block_size),
            seq_lens=self.seq_lens + 1,
            longest=self.longest + 1,
        )


class PagedPasses:
    """Runs some of the layers that vLLM's cache knows.

    Args:
        runner: vLLM's model runner; its cache may come later.
        layer_names: of the attention layers that the passes go through.
    """

    def __init__(self, runner: Any, layer_names: Sequence[str]) -> None:
        self._runner = runner
        self._layer_names = list(layer_names)
        self._step: Step | None = None
        self._places: Mapping[int, int] = {}
        self._last: tuple[Tokens, Pass] | None = None

    def begin(self, step: Step, places: Mapping[int, int]) -> None:
        """What the rows are from now on: ``places`` are the batch rows of the proposer's rows."""
        self._step, self._places, self._last = step, places, None

    def of(self, tokens: Tokens) -> Pass:
        """How the tokens lie in the cache; moved on by a position from the last pass where that is enough."""
        assert self._step is not None, "begin goes before"
        if self._last is not None and follows(tokens, self._last[0]):
            found = self._last[1].following(self._step.block_size)
        else:
            found = self._built(tokens, self._step)
        self._last = (tokens, found) if found.max_query_len == 1 else None
        return found

    @contextmanager
    def running(self, common: CommonAttentionMetadata) -> Iterator[None]:
        """vLLM's forward context, in which its layers read and write as ``common`` says."""
        metadata = {}
        for group, names in self._groups:
            built = group.get_metadata_builder().build_for_drafting(common, draft_index=0)
            metadata.update(dict.fromkeys(names, built))
        with set_forward_context(
            metadata,
            self._runner.vllm_config,
            num_tokens=common.num_actual_tokens,
            slot_mapping=dict.fromkeys(self._layer_names, common.slot_mapping),
        ):
            yield

    @cached_property
    def _groups(self) -> list[tuple[Any, list[str]]]:
        """vLLM's attention groups that hold the layers, each with those it holds."""
        groups = self._runner.attn_groups
        assert len(groups) == 1, f"the cache has {len(groups)} groups; models that need more are refused"
        wanted = set(self._layer_names)
        found = [(group, sorted(wanted & set(group.layer_names))) for group in groups[0]]
        return [(group, names) for group, names in found if names]

    def _built(self, tokens: Tokens, step: Step) -> Pass:
        device = tokens.token_ids.device
        counts, num_rows = tokens.query_lens, len(tokens.row_ids)
        ends = [start + count for start, count in zip(tokens.starts, counts, strict=True)]
        positions = to_device(
            [at for start, end in zip(tokens.starts, ends, strict=True) for at in range(start, end)], device
        )
        row_of_token = to_device([row for row in range(num_rows) for _ in range(counts[row])], device)
        query_starts = torch.tensor(list(accumulate(counts, initial=0)), dtype=torch.int32)
        places = to_device([self._places[row] for row in tokens.row_ids], device)
        block_table = step.common.block_table_tensor[places]
        return Pass(
            positions=positions,
            slots=slots_in(block_table, row_of_token, positions, step.block_size),
            seq_lens=to_device(ends, device).int(),
            longest=max(ends),
            row_of_token=row_of_token,
            block_table=block_table,
            query_starts=(query_starts.to(device, non_blocking=True), query_starts),
            max_query_len=max(counts),
        )
