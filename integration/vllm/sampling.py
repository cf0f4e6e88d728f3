"""How the requests of vLLM's batch sample, as our verifier takes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from foredraft.verifier import SamplingBatch, TokenControls, request_key


class BatchSampling:
    """The sampling of a runner's batch, rebuilt only when the batch changes.

    Read from each request's own parameters: under speculation vLLM's ``SamplingMetadata`` has no min_p and
    no logit_bias.

    Args:
        seed: the engine's seed, for requests without one.
    """

    def __init__(self, seed: int, vocab_size: int, device: torch.device) -> None:
        self._seed, self._vocab_size, self._device = seed, vocab_size, device
        self._built_for: Any = None
        self._columns: dict[str, Tensor | None] = {}
        self._edited: list[int] = []

    def of(self, runner: Any) -> SamplingBatch:
        """The sampling of every row of the batch, as it stands before this step's tokens are committed."""
        batch = runner.input_batch
        states = [runner.requests[request_id] for request_id in batch.req_ids]
        # vLLM makes a new object whenever a request joins, leaves or moves.
        if batch.sampling_metadata is not self._built_for:
            self._build(batch.req_ids, states)
            self._built_for = batch.sampling_metadata
        starts = torch.from_numpy(batch.num_tokens_no_spec[: len(states)]).to(torch.int64)
        return SamplingBatch(
            **self._columns,  # type: ignore[arg-type]
            block_starts=starts.to(self._device, non_blocking=True),
            controls=self._controls(states),
        )

    def _build(self, request_ids: Sequence[str], states: Sequence[Any]) -> None:
        params = [state.sampling_params for state in states]
        keys = [
            request_key(one.seed, self._seed, request_id)
            for one, request_id in zip(params, request_ids, strict=True)
        ]
        self._columns = {
            "temperature": self._tensor([one.temperature for one in params], torch.float32),
            "request_keys": self._tensor(keys, torch.int64),
            "top_k": self._used([max(one.top_k, 0) for one in params], 0, torch.int64),
            "top_p": self._used([one.top_p for one in params], 1.0, torch.float32),
            "min_p": self._used([one.min_p for one in params], 0.0, torch.float32),
        }
        self._edited = [row for row, one in enumerate(params) if _edits_logits(one)]

    def _tensor(self, values: list[Any], dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype).to(self._device, non_blocking=True)

    def _used(self, values: list[Any], off: float, dtype: torch.dtype) -> Tensor | None:
        return None if all(value == off for value in values) else self._tensor(values, dtype)

    def _controls(self, states: Sequence[Any]) -> list[TokenControls | None] | None:
        if not self._edited:
            return None
        controls: list[TokenControls | None] = [None] * len(states)
        for row in self._edited:
            controls[row] = token_controls(states[row], self._vocab_size)
        return controls


def _edits_logits(params: Any) -> bool:
    return bool(
        params.repetition_penalty != 1.0
        or params.presence_penalty != 0.0
        or params.frequency_penalty != 0.0
        or params.logit_bias
        or params.bad_words_token_ids
        or params.allowed_token_ids
        or params.min_tokens
    )


def token_controls(state: Any, vocab_size: int) -> TokenControls:
    """The controls of one of the runner's requests (``CachedRequestState``) that edit single logits."""
    params = state.sampling_params
    return TokenControls(
        prompt_ids=state.prompt_token_ids or (),  # unknown where the prompt came as embeddings
        output_ids=state.output_token_ids,
        repetition_penalty=params.repetition_penalty,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        logit_bias=params.logit_bias or {},
        allowed_token_ids=params.allowed_token_ids or None,
        bad_words=params.bad_words_token_ids or (),
        min_tokens=params.min_tokens,
        stop_token_ids=[token for token in params.all_stop_token_ids if token < vocab_size],
    )
