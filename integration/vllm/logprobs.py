"""Log-probabilities of the emitted tokens, in each of vLLM's modes and in its own form."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from foredraft.verifier import Draft, SamplingBatch
from foredraft.verifier.controls import process_logits
from foredraft.verifier.rows import MIN_TEMPERATURE, Layout, RowSampling
from foredraft.verifier.truncation import target_probs


def emitted_logprobs(
    runner: Any, logits: Tensor, draft: Draft, sampling: SamplingBatch, token_ids: Tensor
) -> Any | None:
    """``LogprobsTensors`` with a row for every place of ``token_ids`` [B, K + 1], padding included.

    vLLM drops the rows of the padding. ``None`` if no request of the batch asked.
    """
    metadata, sampler = runner.input_batch.sampling_metadata, runner.sampler
    if metadata.max_num_logprobs is None and not metadata.logprob_token_ids:
        return None
    layout = Layout.of(draft.lengths, len(logits))
    width = token_ids.shape[1]
    places = layout.starts[:, None] + torch.arange(width, device=logits.device)
    rows = places.clamp(max=len(logits) - 1).flatten()
    scores = _scores(sampler, logits, draft, sampling, layout)[rows]
    tokens = token_ids.flatten().clamp(min=0)
    if metadata.logprob_token_ids:
        wanted = {
            row * width + place: ids
            for row, ids in metadata.logprob_token_ids.items()
            for place in range(width)
        }
        return sampler.gather_specific_token_logprobs(scores, wanted, tokens)
    return sampler.gather_logprobs(scores, metadata.max_num_logprobs, tokens)


def _scores(sampler: Any, logits: Tensor, draft: Draft, sampling: SamplingBatch, layout: Layout) -> Tensor:
    """What vLLM's logprobs mode calls the log-probabilities at every verified position, [N, V] float32."""
    mode = sampler.logprobs_mode
    scores = logits.float()
    if mode.startswith("processed"):
        scores = _processed(process_logits(logits, draft, sampling, layout), sampling, layout)
    if mode.endswith("logits"):
        return scores
    logprobs: Tensor = sampler.compute_logprobs(scores)
    return logprobs


def _processed(logits: Tensor, sampling: SamplingBatch, layout: Layout) -> Tensor:
    """Logits over the temperature, -inf where truncation forbids a token; greedy rows as they are."""
    rows = RowSampling.of(sampling, layout.req_idx)
    greedy = (rows.temperature < MIN_TEMPERATURE)[:, None]
    scaled = torch.where(greedy, logits, logits / rows.temperature.clamp(min=MIN_TEMPERATURE)[:, None])
    return scaled.masked_fill(~greedy & (target_probs(logits, rows) == 0), -torch.inf)
