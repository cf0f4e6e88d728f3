"""The other side of our comparisons: transformers' own ``generate`` on the same model and prompts."""

from __future__ import annotations

import time
from typing import Any

import torch

from foredraft.integration.models.loading import load_model


class TransformersSide:
    """``model.generate``, greedy, with its default (dynamic) cache and sdpa attention."""

    def __init__(self, model: str, dtype: torch.dtype, device: torch.device, **options: Any) -> None:
        loaded = load_model(model, dtype, device)
        self.model, self._tokenizer, self._options = loaded.model, loaded.tokenizer, options

    def tokens_per_s(self, prompts: list[list[int]], max_tokens: int) -> float:
        """Generated tokens (up to each end of sequence) per second, prefill included; prompts padded left."""
        longest = max(map(len, prompts))
        pad = self._tokenizer.pad_token_id or 0
        device = self.model.device
        ids = torch.tensor([[pad] * (longest - len(prompt)) + prompt for prompt in prompts], device=device)
        mask = torch.tensor(
            [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=device
        )
        began = time.perf_counter()
        with torch.inference_mode():
            output = self.model.generate(
                input_ids=ids,
                attention_mask=mask,
                max_new_tokens=max_tokens,
                do_sample=False,
                pad_token_id=pad,
                **self._options,
            )
        rows = output[:, longest:].tolist()
        seconds = time.perf_counter() - began
        return sum(self._length(row) for row in rows) / seconds

    def _length(self, row: list[int]) -> int:
        eos = self._tokenizer.eos_token_id
        return row.index(eos) + 1 if eos in row else len(row)
