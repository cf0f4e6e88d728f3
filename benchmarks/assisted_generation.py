"""transformers' assisted generation with what our proposer drafts with, as sides of a benchmark."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from drafting_options import drafting_values
from transformers import AutoConfig, AutoModelForCausalLM
from transformers_side import TransformersSide

from foredraft.integration.config import Config
from foredraft.integration.embedded.build import Target
from foredraft.integration.embedded.exit_loading import load_exit
from foredraft.integration.errors import UserError
from foredraft.integration.models.draft_file import DRAFT_FILE, DraftFile, read_draft_file
from foredraft.integration.models.loading import load_model
from foredraft.integration.models.pretrained import pretrained

Side = Callable[[int], float]


class Assisted:
    """One side per number of drafted tokens, and one with transformers' own settings.

    Args:
        assistant: the model that drafts; its generation config says how far.
    """

    def __init__(self, side: TransformersSide, assistant: Any) -> None:
        self._side = side
        self._own = assistant.generation_config
        self._defaults = (self._own.num_assistant_tokens, self._own.assistant_confidence_threshold)

    def sides(self, prompts: list[list[int]], max_tokens: int, lengths: list[int]) -> dict[str, Side]:
        settings = {"assistant default": self._defaults}
        settings |= {f"assistant {length}": (length, 0.0) for length in lengths}
        return {name: self._run(prompts, max_tokens, *each) for name, each in settings.items()}

    def _run(self, prompts: list[list[int]], max_tokens: int, num_tokens: int, threshold: float) -> Side:
        def tokens_per_s(block: int) -> float:
            self._own.num_assistant_tokens, self._own.assistant_confidence_threshold = num_tokens, threshold
            self._own.num_assistant_tokens_schedule = "constant"
            return self._side.tokens_per_s([prompts[block % len(prompts)]], max_tokens)

        return tokens_per_s


def assisted_generation(options: argparse.Namespace, target: Target) -> Assisted:
    """transformers' counterpart of ``--proposer``.

    Raises:
        UserError: the draft cannot run there.
    """
    if options.proposer == "early_exit":
        exit_layer = load_exit(Config(**drafting_values(options)).early_exit, target).head.exit_layer
        side = TransformersSide(options.model, torch.bfloat16, target.device, assistant_early_exit=exit_layer)
        return Assisted(side, side.model)
    path = options.assistant or options.draft or pretrained(target.name, DRAFT_FILE)
    if path is None:
        raise UserError("--draft: none is given, and the model comes without one")
    draft = read_draft_file(Path(path))
    if draft.reads_states:
        raise UserError("--assistant: this draft reads hidden states, which transformers cannot pass on")
    assistant = llama_assistant(draft, options.model, target)
    side = TransformersSide(options.model, torch.bfloat16, target.device, assistant_model=assistant)
    return Assisted(side, assistant)


def llama_assistant(draft: DraftFile, model_name: str, target: Target) -> Any:
    """A transformers model of the draft's layers between the target's embedding and whole head."""
    whole = load_model(model_name, torch.bfloat16, target.device).model
    config = AutoConfig.for_model(
        **(draft.layers_config | {"vocab_size": target.vocab_size, "tie_word_embeddings": False})
    )
    assistant = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval().requires_grad_(False)
    layers = {name: tensor for name, tensor in draft.tensors.items() if name != "head.weight"}
    report = assistant.model.load_state_dict(layers, strict=False)
    assert report.missing_keys == ["embed_tokens.weight"], report.missing_keys
    assert not report.unexpected_keys, report.unexpected_keys
    assistant.to(target.device)
    assistant.get_input_embeddings().weight = whole.get_input_embeddings().weight
    assistant.get_output_embeddings().weight = whole.get_output_embeddings().weight
    assistant.generation_config.eos_token_id = whole.generation_config.eos_token_id
    return assistant
