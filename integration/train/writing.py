"""The target writes its own training text: answers to prompts, and if need be the prompts themselves.

A chat model that is given only the opening of a user's turn goes on with a user's message of the kind it
was trained on (Magpie: Xu et al., arXiv 2406.08464). So no data set has to be found, and every text is the
target's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from foredraft.integration.chat import chat_prompt_ids, template_errors
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.errors import UserError
from foredraft.integration.sampling_params import SamplingParams
from foredraft.integration.train.samples import Sample

PLACE_OF_PROMPT = "PLACE OF THE PROMPT"
MAX_PROMPT_TOKENS = 160
RESPONSE_TEMPERATURES = (0.0, 1.0, 0.0, 0.7)
"""Half of the answers are greedy, as many requests are; the rest show the draft less likely texts."""


@dataclass(frozen=True)
class Prompt:
    """What the target is to answer. ``loss_start`` as in ``Sample``."""

    index: int
    token_ids: list[int]
    loss_start: int


def chat_opening(tokenizer: Any) -> list[int]:
    """Token ids of the chat template up to where the user's text begins.

    Raises:
        UserError: the model has no chat template, so it cannot write prompts; or it refuses one user's turn.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise UserError("--data: this model has no chat template to write prompts with; give a file of texts")
    message = [{"role": "user", "content": PLACE_OF_PROMPT}]
    with template_errors():
        text = tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=False)
    return list(tokenizer(text.partition(PLACE_OF_PROMPT)[0], add_special_tokens=False)["input_ids"])


def write_prompts(engine: EmbeddedEngine, indices: Sequence[int], seed: int) -> list[Prompt]:
    """One prompt of a user per index, by the target; those that found no end are left out."""
    opening = chat_opening(engine.tokenizer)
    params = [
        SamplingParams(
            temperature=1.0, top_p=0.95, max_tokens=MAX_PROMPT_TOKENS, seed=_seed(seed, index, "prompt")
        )
        for index in indices
    ]
    prompts = []
    for index, output in zip(indices, engine.generate([opening] * len(indices), params), strict=True):
        text = output.outputs[0].text.strip()
        if output.outputs[0].finish_reason == "stop" and text:
            ids = chat_prompt_ids(engine.tokenizer, [{"role": "user", "content": text}])
            prompts.append(Prompt(index, ids, loss_start=len(opening)))
    return prompts


def write_responses(
    engine: EmbeddedEngine, prompts: Sequence[Prompt], max_tokens: int, seed: int
) -> Iterator[Sample]:
    """The target's answer to each prompt."""
    params = [
        SamplingParams(
            temperature=RESPONSE_TEMPERATURES[prompt.index % len(RESPONSE_TEMPERATURES)],
            max_tokens=max_tokens,
            seed=_seed(seed, prompt.index, "response"),
        )
        for prompt in prompts
    ]
    outputs = engine.generate([prompt.token_ids for prompt in prompts], params)
    for prompt, output in zip(prompts, outputs, strict=True):
        ids = prompt.token_ids + output.outputs[0].token_ids
        yield Sample(prompt.index, ids, len(prompt.token_ids), prompt.loss_start)


def _seed(seed: int, index: int, kind: str) -> int:
    """A seed of its own for each text, the same whenever it is written."""
    return (seed * 1_000_003 + index) * 2 + (kind == "response")
