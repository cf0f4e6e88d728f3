"""Ragged bookkeeping: which request, and which place of its draft, a row of the target's logits is for."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from foredraft.verifier.sampling import SamplingBatch

MIN_TEMPERATURE = 1e-5
"""Temperatures below this are greedy, as in vLLM."""


@dataclass(frozen=True)
class Layout:
    """Where the N = sum(lengths + 1) rows of the target's logits belong.

    Attributes:
        starts: [B] int64, first row of each request.
        req_idx: [N] int64, request of each row.
        offset: [N] int64, how many draft tokens precede the row's token.
    """

    starts: Tensor
    req_idx: Tensor
    offset: Tensor

    @staticmethod
    def of(lengths: Tensor, num_rows: int) -> Layout:
        """The layout of drafts of ``lengths`` [B].

        Raises:
            ValueError: ``num_rows`` is not sum(lengths + 1).
        """
        requests = torch.arange(len(lengths), device=lengths.device)
        expected = int(lengths.sum()) + len(lengths)
        if num_rows != expected:
            raise ValueError(
                f"target_logits has {num_rows} rows, the draft needs sum(lengths + 1) = {expected}"
            )
        if num_rows == len(lengths):  # nobody drafts
            return Layout(requests, requests, torch.zeros_like(requests))
        starts = (lengths + 1).cumsum(0) - lengths - 1
        req_idx = requests.repeat_interleave(lengths + 1, output_size=num_rows)
        offset = torch.arange(num_rows, device=lengths.device) - starts[req_idx]
        return Layout(starts, req_idx, offset)


@dataclass(frozen=True)
class RowSampling:
    """The sampling controls of N single positions. ``None`` switches a control off for all of them.

    Attributes:
        temperature: [N] float32; below ``MIN_TEMPERATURE`` = greedy.
        top_k: [N] int64; 0 = off.
        top_p: [N] float32 in (0, 1]; 1 = off.
        min_p: [N] float32 in [0, 1]; 0 = off.
    """

    temperature: Tensor
    top_k: Tensor | None = None
    top_p: Tensor | None = None
    min_p: Tensor | None = None

    @staticmethod
    def of(sampling: SamplingBatch, req_idx: Tensor) -> RowSampling:
        """The controls of rows that belong to requests ``req_idx`` [N]."""
        batch = RowSampling(sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p)
        return batch.select(req_idx)

    def truncated(self) -> Tensor:
        """Which rows have any control but the temperature on, [N] bool."""
        truncated = torch.zeros_like(self.temperature, dtype=torch.bool)
        for control, off in ((self.top_k, 0), (self.top_p, 1), (self.min_p, 0)):
            if control is not None:
                truncated |= control != off
        return truncated

    def select(self, rows: Tensor | slice) -> RowSampling:
        """The controls of ``rows`` (indices or a slice); a control none of them uses becomes ``None``."""
        return RowSampling(
            temperature=self.temperature[rows],
            top_k=_used(self.top_k, rows, off=0),
            top_p=_used(self.top_p, rows, off=1),
            min_p=_used(self.min_p, rows, off=0),
        )


def _used(control: Tensor | None, rows: Tensor | slice, off: int) -> Tensor | None:
    if control is None:
        return None
    values = control[rows]
    # A synchronisation on a GPU, worth it: an unused control then costs no pass over the vocabulary.
    return values if bool((values != off).any()) else None


def select_rows(values: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of ``values`` [N, ...] where ``chosen`` [N] is true, and their indices; no copy if all are."""
    rows = chosen.nonzero().squeeze(1)
    return (values if len(rows) == len(values) else values.index_select(0, rows)), rows
