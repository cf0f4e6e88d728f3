"""Workloads as chat prompts in token ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from foredraft.integration.chat import chat_prompt_ids
from foredraft.integration.errors import UserError
from foredraft.integration.sampling_params import SamplingParams
from foredraft.integration.workloads import WorkloadPrompt, load_workload


@dataclass(frozen=True)
class Prompt:
    """A prompt as the target reads it."""

    prompt_id: str
    token_ids: list[int]


@dataclass(frozen=True)
class CompareRequest:
    """What every configuration is given alike."""

    prompt: Prompt
    params: SamplingParams


def load_workloads(
    names: Sequence[str], limit: int | None, *, by_category: bool
) -> dict[str, list[WorkloadPrompt]]:
    """The prompts by name of the workload, or of "workload/category", before any model is loaded.

    Raises:
        UserError: a workload that cannot be read.
    """
    loaded: dict[str, list[WorkloadPrompt]] = {}
    for name in names:
        for prompt in load_workload(name, limit=limit):
            key = f"{name}/{prompt.category}" if by_category else name
            loaded.setdefault(key, []).append(prompt)
    return loaded


def encode_prompts(prompts: Sequence[WorkloadPrompt], tokenizer: Any | None, max_len: int) -> list[Prompt]:
    """The first turn of each prompt as a user message, through the model's chat template.

    Raises:
        UserError: no tokenizer, or a prompt that leaves no room to generate.
    """
    if tokenizer is None:
        raise UserError("model: it has no tokenizer, so prompts cannot be turned into tokens")
    encoded = []
    for prompt in prompts:
        token_ids = chat_prompt_ids(tokenizer, [{"role": "user", "content": prompt.turns[0]}])
        if len(token_ids) >= max_len:
            raise UserError(
                f"workload: prompt {prompt.id!r} has {len(token_ids)} tokens, which leaves no room to "
                f"generate within {max_len}"
            )
        encoded.append(Prompt(prompt.id, token_ids))
    return encoded
