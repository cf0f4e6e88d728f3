"""Workloads as requests: chat prompts in token ids, with a seed each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from foredraft.integration.chat import chat_prompt_ids
from foredraft.integration.compare.plan import Cell, ComparePlan, request_params
from foredraft.integration.errors import UserError
from foredraft.integration.sampling_params import SamplingParams
from foredraft.integration.workloads import WorkloadPrompt, load_workload

NUM_SEEDS = 2**63


@dataclass(frozen=True)
class Prompt:
    """A prompt as the target reads it."""

    prompt_id: str
    token_ids: list[int]


@dataclass(frozen=True)
class CompareRequest:
    """What every proposer is given alike."""

    prompt: Prompt
    params: SamplingParams


def load_workloads(plan: ComparePlan) -> dict[str, list[WorkloadPrompt]]:
    """The prompts of each workload, before any model is loaded.

    Raises:
        UserError: a workload that cannot be read.
    """
    return {name: load_workload(name, limit=plan.limit) for name in plan.workloads}


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


def cell_requests(plan: ComparePlan, cell: Cell, prompts: Sequence[Prompt]) -> list[CompareRequest]:
    """Every prompt ``plan.repeats`` times, or as often as fills a batch; each time another seed."""
    repeats = max(plan.repeats, -(-cell.batch_size // len(prompts)))
    return [
        CompareRequest(
            prompt, request_params(plan.base, cell.temperature, seed=(plan.seed + number) % NUM_SEEDS)
        )
        for number, prompt in enumerate([*prompts] * repeats)
    ]
