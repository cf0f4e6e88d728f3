"""One pass without a cache: in vLLM's compiled mode it compiles what drafts."""

from __future__ import annotations

from typing import Any

import torch
from vllm.forward_context import set_forward_context

from foredraft.integration.vllm.paged.decoder import Body

NUM_TOKENS = 8
"""Any number but 0 and 1, which a compiler takes for constants."""


@torch.inference_mode()
def warm_up(body: Body, vllm_config: Any) -> None:
    """Run ``body``; without metadata vLLM's attention does nothing."""
    device = vllm_config.device_config.device
    ids = torch.zeros(NUM_TOKENS, dtype=torch.int64, device=device)
    size, dtype = vllm_config.model_config.get_hidden_size(), vllm_config.model_config.dtype
    states = torch.zeros((NUM_TOKENS, size), dtype=dtype, device=device)
    with set_forward_context(None, vllm_config, num_tokens=NUM_TOKENS):
        body.logits(body.run(ids, torch.arange(NUM_TOKENS, device=device), states))
