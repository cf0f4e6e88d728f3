"""Our sampling parameters as vLLM's, and vLLM's outputs as ours."""

from __future__ import annotations

from typing import Any, cast

from foredraft.integration.engine import (
    CompletionOutput,
    FinishReason,
    Logprob,
    PositionLogprobs,
    SpeculationStats,
)
from foredraft.integration.sampling_params import SamplingParams
from foredraft.integration.vllm.request_limit import LIMIT


def to_vllm(params: SamplingParams) -> Any:
    """vLLM's ``SamplingParams``, whose fields have the same names, but for a limit of draft tokens.

    Raises:
        ValueError: a value that vLLM refuses.
    """
    from vllm import SamplingParams as VllmSamplingParams

    values = params.model_dump()
    # vLLM lets no request pass that names a bias under speculation, be it an empty one.
    values["logit_bias"] = values["logit_bias"] or None
    values["bad_words"] = values["bad_words"] or None
    limit = values.pop(LIMIT)
    values["extra_args"] = None if limit is None else {LIMIT: limit}
    return VllmSamplingParams(**values)


def completion_of(output: Any, num_passes: int) -> CompletionOutput:
    """One of vLLM's completions, whole so far.

    Args:
        num_passes: in how many steps it grew.
    """
    finish_reason = output.finish_reason
    return CompletionOutput(
        index=output.index,
        text=output.text,
        token_ids=list(output.token_ids),
        finish_reason=None if finish_reason is None else cast(FinishReason, str(finish_reason)),
        stop_reason=output.stop_reason,
        logprobs=None if output.logprobs is None else [position_logprobs(one) for one in output.logprobs],
        speculation=speculation_of(output, num_passes),
    )


def position_logprobs(entry: Any) -> PositionLogprobs:
    """vLLM's log-probabilities at one position."""
    return {token: Logprob(one.logprob, one.rank) for token, one in entry.items()}


def speculation_of(output: Any, num_passes: int) -> SpeculationStats:
    """Counts of a completion; vLLM tells those of its drafts when it is finished."""
    stats = SpeculationStats(num_steps=num_passes, num_emitted_tokens=len(output.token_ids))
    found = output.spec_decode_metrics
    if found is not None:
        stats.num_drafts = sum(drafted > 0 for drafted in found.per_step_drafted)
        stats.num_drafted_tokens = sum(found.per_step_drafted)
        stats.num_accepted_tokens = sum(found.per_step_accepted)
    return stats
