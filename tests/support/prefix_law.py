"""The exact law of short outputs of a small model, from its logits after every possible prefix."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from foredraft.verifier.reference import reference_law

Output = tuple[int, ...]


def prefix_logits(folder: Path, prompt: Sequence[int], length: int) -> dict[Output, Tensor]:
    """The model's logits after ``prompt`` and every output of fewer than ``length`` tokens."""
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    logits: dict[Output, Tensor] = {}
    for size in range(length):
        outputs = list(itertools.product(range(model.config.vocab_size), repeat=size))
        with torch.inference_mode():
            last = model(torch.tensor([[*prompt, *output] for output in outputs])).logits[:, -1]
        logits |= dict(zip(outputs, last.double(), strict=True))
    return logits


def output_law(
    logits: dict[Output, Tensor], prompt: Sequence[int], length: int, params: Any
) -> dict[Output, float]:
    """The probability of every output of ``length`` tokens; ``params`` are vLLM's."""
    law: dict[Output, float] = {(): 1.0}
    for _ in range(length):
        law = {
            (*output, token): probability * share
            for output, probability in law.items()
            for token, share in enumerate(_token_law(logits[output], prompt, output, params))
            if share > 0
        }
    return law


def _token_law(logits: Tensor, prompt: Sequence[int], output: Output, params: Any) -> list[float]:
    """Worked out in float64 apart from the code under test."""
    logits = logits.clone()
    if params.allowed_token_ids:
        for token in set(range(len(logits))) - set(params.allowed_token_ids):
            logits[token] = -math.inf
    if len(output) < params.min_tokens:
        for token in params.stop_token_ids:
            logits[token] = -math.inf
    for token, bias in (params.logit_bias or {}).items():
        logits[token] += bias
    for token in {*prompt, *output}:
        logits[token] *= params.repetition_penalty if logits[token] < 0 else 1 / params.repetition_penalty
    for token, count in Counter(output).items():
        logits[token] -= params.frequency_penalty * count + params.presence_penalty
    law: list[float] = reference_law(
        logits, params.temperature, max(params.top_k, 0), params.top_p, params.min_p
    ).tolist()
    return law
