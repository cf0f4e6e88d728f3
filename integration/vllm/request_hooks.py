"""Which requests are let in: those that vLLM refuses under speculation, and our verifier serves."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from foredraft.integration.vllm.hooks import Hook, HookSet
from foredraft.integration.vllm.options import DRAFTER
from foredraft.integration.vllm.request_limit import fault_of


def _admitting(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _validate_spec_decode(self: Any, speculative_config: Any) -> None:
        if speculative_config is None or speculative_config.model != DRAFTER:
            original(self, speculative_config)
        elif fault := _fault_of(self):
            from vllm.exceptions import VLLMValidationError

            raise VLLMValidationError(fault)

    return _validate_spec_decode


def _fault_of(params: Any) -> str | None:
    if params.thinking_token_budget is not None:
        return "thinking_token_budget does not work with foredraft's drafts"
    return fault_of(params)


REQUEST_HOOKS = HookSet(
    [
        Hook(
            name="admission",
            purpose="lets min_p and logit_bias in, which vLLM refuses under speculation",
            target="vllm.sampling_params:SamplingParams._validate_spec_decode",
            parameters=("self", "speculative_config"),
            make=_admitting,
        )
    ]
)
