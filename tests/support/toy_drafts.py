"""Toy drafts: a whole model beside the toy target, and a trained draft that reads the target's states."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from toys import TOY_VOCAB, toy_model
from transformers import LlamaForCausalLM

from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.embedded.draft_forward import DraftForward
from foredraft.integration.embedded.forward import ForwardPass, prepare_model
from foredraft.integration.embedded.target import Target
from foredraft.integration.models.draft_file import HEAD_WEIGHT, DraftFile
from foredraft.integration.models.fingerprint import fingerprint
from foredraft.proposers import DraftContext
from foredraft.proposers.draft_model import DraftModelProposer
from foredraft.verifier import SamplingBatch

CPU = torch.device("cpu")


def noisy_model(noise: float = 0.012, num_layers: int = 2, seed: int = 0) -> LlamaForCausalLM:
    """The toy model with other weights nearby: right about half the time as a draft of it."""
    return noised(toy_model(num_layers, seed=seed), noise, seed + 1)


def noised(model: LlamaForCausalLM, noise: float, seed: int) -> LlamaForCausalLM:
    """Move every weight of ``model`` a little."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.add_(torch.randn(parameter.shape, generator=generator) * noise)
    return model


def toy_target(model: LlamaForCausalLM, name: str = "toy", **values: Any) -> Target:
    """A target as ``load_target`` makes one, of a copy of ``model``."""
    weights = fingerprint(model.named_parameters())
    given: dict[str, Any] = {
        "name": name,
        "prepared": prepare_model(copy.deepcopy(model)),
        "tokenizer": None,
        "eos_ids": frozenset(),
        "vocab_size": model.config.vocab_size,
        "max_len": model.config.max_position_embeddings,
        "dtype": torch.float32,
        "device": CPU,
        "fingerprint": weights,
    }
    return Target(**(given | values))


def trained_draft(
    model: LlamaForCausalLM, *, reads_states: bool = True, head_ids: Tensor | None = None, **values: Any
) -> DraftFile:
    """What training for ``model`` could have written: its own layers, on embedding and states together."""
    base = model.model.state_dict()
    tensors = {name: tensor.clone() for name, tensor in base.items() if not name.startswith("embed_tokens")}
    size = model.config.hidden_size
    if reads_states:
        tensors["embed_norm.weight"] = torch.full((size,), 0.2)  # the size of the toy's embeddings
        tensors["state_norm.weight"] = torch.full((size,), 0.02)
        tensors["input_proj.weight"] = torch.eye(size).repeat(1, 2)
    head_ids = torch.arange(model.config.vocab_size) if head_ids is None else head_ids
    tensors[HEAD_WEIGHT] = model.lm_head.weight[head_ids].clone()
    given: dict[str, Any] = {
        "kind": "draft",
        "target": "toy",
        "target_fingerprint": fingerprint(model.named_parameters()),
        "reads_states": reads_states,
        "layers_config": model.config.to_dict(),
        "tensors": tensors,
        "head_ids": head_ids,
    }
    return DraftFile(**(given | values))


def draft_forward(
    model: LlamaForCausalLM, *, reads_states: bool, dtype: torch.dtype = torch.float32
) -> ForwardPass:
    """A draft of the toy ``model``: a trained one, or a whole model of its own."""
    if reads_states:
        return DraftForward(trained_draft(model), toy_target(model).prepared, CPU, dtype)
    return prepare_model(noisy_model(num_layers=model.config.num_hidden_layers).to(dtype))


def draft_decoder(prepared: ForwardPass, num_rows: int = 4, capacity: int = 256) -> SlotDecoder:
    return SlotDecoder(prepared, num_rows, capacity, 512, TOY_VOCAB)


def greedy_sampling(lengths: Sequence[int]) -> SamplingBatch:
    return SamplingBatch(
        temperature=torch.zeros(len(lengths)),
        request_keys=torch.arange(len(lengths)),
        block_starts=torch.tensor(lengths),
    )


def context_of(
    tokens: dict[str, list[int]],
    rows: Sequence[int],
    limits: Sequence[int],
    sampling: SamplingBatch | None = None,
    hidden_states: Any = None,
) -> DraftContext:
    """A context of the requests in ``tokens``; greedy by default."""
    lengths = [len(one) for one in tokens.values()]
    sampling = greedy_sampling(lengths) if sampling is None else sampling
    return DraftContext(list(tokens), list(tokens.values()), limits, sampling, rows, hidden_states)


def drafted_lists(proposer: DraftModelProposer, context: DraftContext) -> list[list[int]]:
    """The drafted tokens of each row, their padding checked and removed."""
    draft = proposer.propose(context)
    rows = []
    for row, length in zip(draft.token_ids.tolist(), draft.lengths.tolist(), strict=True):
        assert all(token >= 0 for token in row[:length])
        assert all(token == -1 for token in row[length:])
        rows.append(row[:length])
    return rows


class FakeStates:
    """Hidden states that depend on the token and the position alone; what may not be read is NaN."""

    def __init__(self, rows: dict[int, list[int]], hidden_size: int = 64) -> None:
        self.rows = rows  # cache row -> committed tokens
        generator = torch.Generator().manual_seed(3)
        self._of_token = torch.randn(TOY_VOCAB, hidden_size, generator=generator)
        self._of_position = torch.randn(512, hidden_size, generator=generator)

    def read(self, rows: Sequence[int], starts: Sequence[int], counts: Sequence[int]) -> Tensor:
        """See ``HiddenStates``."""
        states = [
            self._state(self.rows[row], position)
            for row, start, count in zip(rows, starts, counts, strict=True)
            for position in range(start, start + count)
        ]
        return torch.stack(states)

    def _state(self, tokens: list[int], position: int) -> Tensor:
        if position == -1:
            return torch.zeros_like(self._of_token[0])
        if not 0 <= position < len(tokens) - 1:
            return torch.full_like(self._of_token[0], torch.nan)
        return self._of_token[tokens[position]] + self._of_position[position]
