"""The sampling controls of a batch, as tensors. One request is one row; B rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class TokenControls:
    """Controls that edit single logits of one request. Defaults switch each one off.

    Attributes:
        prompt_ids: prompt tokens (the repetition penalty counts them).
        output_ids: tokens generated so far, all committed.
        repetition_penalty: > 0; logits of tokens seen in prompt or output are divided (positive logit) or
            multiplied (negative logit) by it. 1 = off.
        presence_penalty: subtracted once from tokens seen in the output. 0 = off.
        frequency_penalty: subtracted once per occurrence in the output. 0 = off.
        logit_bias: token id -> value added to its logit.
        allowed_token_ids: only these may be generated; ``None`` = all.
        bad_words: token sequences that must not be completed.
        min_tokens: before this many output tokens, ``stop_token_ids`` are forbidden.
        stop_token_ids: end-of-sequence and stop tokens, as ``min_tokens`` sees them.
    """

    prompt_ids: Sequence[int] = ()
    output_ids: Sequence[int] = ()
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = field(default_factory=dict)
    allowed_token_ids: Sequence[int] | None = None
    bad_words: Sequence[Sequence[int]] = ()
    min_tokens: int = 0
    stop_token_ids: Sequence[int] = ()


@dataclass(frozen=True)
class SamplingBatch:
    """How each of B requests samples. A tensor field that no request uses may be ``None``.

    Attributes:
        temperature: [B] float32; 0 = greedy.
        request_keys: [B] int64, the key of each request's random stream (``random.request_key``).
        block_starts: [B] int64, tokens committed (prompt included) when this block begins.
        top_k: [B] int64; 0 = off.
        top_p: [B] float32 in (0, 1]; 1 = off.
        min_p: [B] float32 in [0, 1]; 0 = off.
        controls: one entry per request, ``None`` where a request edits no logits; ``None`` if none does.
        allowed_mask: [N, V] bool, grammar mask of every verified position (N = sum of lengths + 1);
            ``False`` forbids a token.
    """

    temperature: Tensor
    request_keys: Tensor
    block_starts: Tensor
    top_k: Tensor | None = None
    top_p: Tensor | None = None
    min_p: Tensor | None = None
    controls: Sequence[TokenControls | None] | None = None
    allowed_mask: Tensor | None = None
