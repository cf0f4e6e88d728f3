"""The draft model of ``proposer: draft`` as vLLM's configuration of a model."""

from __future__ import annotations

from typing import Any

from foredraft.integration.config import Config


def draft_model_config(config: Config, target: Any) -> Any:
    """vLLM's ``ModelConfig`` of the model that ``draft.model`` names, beside the target's.

    Raises:
        ValueError: vLLM cannot run it, in vLLM's words.
    """
    from vllm.config import ModelConfig

    return ModelConfig(
        model=config.draft.model,
        runner="draft",
        tokenizer=target.tokenizer,
        tokenizer_mode=target.tokenizer_mode,
        trust_remote_code=target.trust_remote_code,
        dtype=target.dtype,
        seed=target.seed,
        enforce_eager=target.enforce_eager,
        skip_tokenizer_init=target.skip_tokenizer_init,
        config_format=target.config_format,
    )
