"""Our verifier in place of vLLM's sampler and rejection sampler: logits in, ``SamplerOutput`` out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from foredraft.integration.vllm.log import logger
from foredraft.integration.vllm.logprobs import emitted_logprobs
from foredraft.verifier import PADDING, Draft, Rule, SamplingBatch, Verdict, verify


def scheduled_draft(metadata: Any | None, num_requests: int, device: torch.device) -> Draft:
    """The drafted tokens that vLLM scheduled in this step, from its ``SpecDecodeMetadata``.

    It may be fewer than were proposed. ``None``: nobody's draft was scheduled.
    """
    if metadata is None:
        return Draft.none(num_requests, device)
    lengths = torch.tensor(metadata.num_draft_tokens, dtype=torch.int64).to(device, non_blocking=True)
    places = torch.arange(metadata.max_spec_len, device=device)
    token_ids = torch.full((num_requests, metadata.max_spec_len), PADDING, dtype=torch.int64, device=device)
    token_ids.masked_scatter_(places < lengths[:, None], metadata.draft_token_ids.long())
    return Draft(token_ids, lengths)


def sample(runner: Any, logits: Tensor, draft: Draft, sampling: SamplingBatch, rule: Rule) -> Any:
    """The tokens of this step, as vLLM's ``SamplerOutput``.

    Args:
        logits: [N, V], after vLLM's grammar mask; not modified.

    Returns:
        ``sampled_token_ids`` [B, K + 1] int32, padded with ``PADDING``.
    """
    from vllm.v1.outputs import SamplerOutput

    verdict = verify(logits, draft, sampling, rule)
    token_ids = _with_some_token(verdict, logits, draft)
    return SamplerOutput(
        sampled_token_ids=token_ids.to(torch.int32),
        logprobs_tensors=emitted_logprobs(runner, logits, draft, sampling, token_ids),
    )


def _with_some_token(verdict: Verdict, logits: Tensor, draft: Draft) -> Tensor:
    """The verdict's tokens; a request whose controls forbid every token gets the likeliest one all the same.

    As in vLLM, which expects a token of every request: the stop token, where a grammar has come to its end
    before min_tokens.
    """
    accepted = verdict.num_accepted[:, None]
    stuck = (verdict.token_ids.gather(1, accepted) == PADDING).squeeze(1)
    if not bool(stuck.any()):
        return verdict.token_ids
    logger.warning("the controls of %d requests forbid every token; they get the likeliest", int(stuck.sum()))
    rows = (draft.lengths + 1).cumsum(0) - draft.lengths - 1 + verdict.num_accepted
    likeliest = logits[rows[stuck]].float().nan_to_num(nan=-torch.inf).argmax(1)
    token_ids = verdict.token_ids.clone()
    token_ids[stuck] = token_ids[stuck].scatter(1, accepted[stuck], likeliest[:, None])
    return token_ids
