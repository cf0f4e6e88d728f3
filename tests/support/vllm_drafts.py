"""Models and trained files that draft in a vLLM engine, and what the embedded engine would draft."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from toy_drafts import context_of, noised, toy_target, trained_draft
from toy_exits import fading, trained_exit
from transformers import LlamaForCausalLM
from vllm_toys import toy_llama

from foredraft.integration.config import Config
from foredraft.integration.embedded.build import build_engine
from foredraft.integration.models.draft_file import DraftFile, write_draft_file
from foredraft.proposers import DraftContext, Outcome, Proposer, ReleaseReason, Tokens
from foredraft.verifier import Draft

NUM_LAYERS = 4
NUM_DRAFT_TOKENS = 3


def target_model(vocab_size: int = 97, num_layers: int = NUM_LAYERS) -> LlamaForCausalLM:
    """What says less with every layer, so that an exit is right now and then."""
    return fading(toy_llama(vocab_size, num_layers))


class Drafts:
    """What may draft for ``model``: a name -> the plugin's options, files written on demand."""

    def __init__(self, model: LlamaForCausalLM, folder: Path) -> None:
        self.model, self._folder = model, folder
        last = model.config.num_hidden_layers
        self._makers: dict[str, Callable[[], dict[str, Any]]] = {
            "own head, all layers": lambda: _own(last),
            "own head": lambda: _own(last - 2),
            "head: the last layer": lambda: self._exit(exit_layer=last - 1),
            "head: the last 2 layers": lambda: self._exit(exit_layer=last - 2, num_blocks=2),
            "head reading states": lambda: self._exit(exit_layer=2, reads_states=True),
            "head of 2 layers reading states": lambda: self._exit(
                exit_layer=1, num_blocks=2, reads_states=True, head_ids=torch.arange(0, 97, 2)
            ),
            "draft: the model itself": lambda: self._whole(copy.deepcopy(model)),
            "draft: a model nearby": lambda: self._whole(noised(copy.deepcopy(model), 0.012, seed=1)),
            "draft: another shape": lambda: self._whole(toy_llama(model.config.vocab_size, 1, num_heads=3)),
            "trained draft: the layers themselves": lambda: self._trained(reads_states=False),
            "trained draft reading states": lambda: self._trained(reads_states=True),
            "trained draft of one layer": lambda: self._trained(**_first_layer(model)),
        }

    def options(self, name: str) -> dict[str, Any]:
        """``additional_config["foredraft"]``."""
        return {"num_draft_tokens": NUM_DRAFT_TOKENS, **self._makers[name]()}

    def _exit(self, **values: Any) -> dict[str, Any]:
        return {
            "proposer": "early_exit",
            "early_exit": {"head": self._written(trained_exit(self.model, **values))},
        }

    def _trained(self, **values: Any) -> dict[str, Any]:
        return {"proposer": "draft", "draft": {"model": self._written(trained_draft(self.model, **values))}}

    def _whole(self, model: LlamaForCausalLM) -> dict[str, Any]:
        model.save_pretrained(self._folder / "draft")
        return {"proposer": "draft", "draft": {"model": str(self._folder / "draft")}}

    def _written(self, file: DraftFile) -> str:
        path = self._folder / f"{file.kind}.safetensors"
        write_draft_file(path, file)
        return str(path)


def _own(exit_layer: int) -> dict[str, Any]:
    return {"proposer": "early_exit", "early_exit": {"head": "own", "exit_layer": exit_layer}}


def _first_layer(model: LlamaForCausalLM) -> dict[str, Any]:
    """What a trained draft that reads states has with one layer alone."""
    file = trained_draft(model)
    wanted = [name for name in file.tensors if ".layers." not in f".{name}" or name.startswith("layers.0.")]
    return {
        "layers_config": file.layers_config | {"num_hidden_layers": 1},
        "tensors": {name: file.tensors[name] for name in wanted},
    }


class Recording(Proposer):
    """Remembers what another proposer drafted after which tokens, and why it was to forget requests."""

    def __init__(self, inner: Proposer) -> None:
        self.inner, self.needs_hidden_states = inner, inner.needs_hidden_states
        self.drafted: dict[tuple[int, ...], list[int]] = {}
        self.reasons: set[ReleaseReason] = set()

    def propose(self, context: DraftContext) -> Draft:
        draft = self.inner.propose(context)
        for tokens, ids, length in zip(
            context.token_ids, draft.token_ids.tolist(), draft.lengths.tolist(), strict=True
        ):
            if length:
                self.drafted[tuple(tokens)] = ids[:length]
        return draft

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        self.inner.observe(outcomes)

    def release(self, request_id: str, reason: ReleaseReason) -> None:
        self.reasons.add(reason)
        self.inner.release(request_id, reason)


class Embedded:
    """The embedded engine's proposer under the same options, asked about one text at a time."""

    def __init__(self, model: LlamaForCausalLM, options: dict[str, Any]) -> None:
        config = Config(**(options | {"engine": {"max_num_seqs": 1, "max_model_len": 256}}))
        self._engine = build_engine(config, toy_target(model))

    def draft(self, committed: Sequence[int], length: int) -> list[int]:
        """What it drafts after tokens that it has never seen before."""
        decoder, proposer = self._engine.decoder, self._engine.proposer
        assert proposer is not None
        decoder.truncate(0, 0)
        proposer.release("text", "finished")
        known = list(committed[:-1])
        decoder.forward(Tokens(torch.tensor(known), [0], [0], [len(known)]))
        draft = proposer.propose(
            context_of({"text": list(committed)}, [0], [length], hidden_states=decoder.hidden_states)
        )
        ids: list[int] = draft.token_ids[0, : int(draft.lengths[0])].tolist()
        return ids
