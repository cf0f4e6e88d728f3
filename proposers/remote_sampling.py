"""The sampling of a batch as numbers that travel, and back."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from foredraft.proposers.remote_messages import RequestSampling
from foredraft.verifier import SamplingBatch


def samplings(batch: SamplingBatch) -> list[RequestSampling]:
    """How each request of a batch samples."""
    keys, temperatures = batch.request_keys.tolist(), batch.temperature.tolist()

    def column(values: Tensor | None, off: float) -> list[float]:
        return [off] * len(keys) if values is None else values.tolist()

    columns = (column(batch.top_k, 0), column(batch.top_p, 1.0), column(batch.min_p, 0.0))
    return [RequestSampling(*row) for row in zip(keys, temperatures, *columns, strict=True)]  # type: ignore[arg-type]


def sampling_batch(each: Sequence[RequestSampling], block_starts: Sequence[int]) -> SamplingBatch:
    """The sampling of a batch, on the CPU."""

    def column(name: str, off: float, dtype: torch.dtype) -> Tensor | None:
        values = [getattr(one, name) for one in each]
        return None if all(value == off for value in values) else torch.tensor(values, dtype=dtype)

    return SamplingBatch(
        temperature=torch.tensor([one.temperature for one in each], dtype=torch.float32),
        request_keys=torch.tensor([one.request_key for one in each], dtype=torch.int64),
        block_starts=torch.tensor(block_starts, dtype=torch.int64),
        top_k=column("top_k", 0, torch.int64),
        top_p=column("top_p", 1.0, torch.float32),
        min_p=column("min_p", 0.0, torch.float32),
    )
