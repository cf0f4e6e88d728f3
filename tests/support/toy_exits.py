"""Toy exit heads of both kinds, engines that draft with them, and what such a head should compute."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from toys import TOY_VOCAB, make_engine, toy_model
from transformers import LlamaConfig, LlamaForCausalLM, LlamaModel

from foredraft.integration.config import Config
from foredraft.integration.embedded.build import build_engine
from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.embedded.exit_decoder import ExitDecoder
from foredraft.integration.embedded.exit_head import ExitHead, TrainedHead
from foredraft.integration.embedded.forward import ForwardPass
from foredraft.integration.embedded.target import Target
from foredraft.integration.errors import UserError
from foredraft.integration.models.draft_file import EXIT_FILE, HEAD_WEIGHT, DraftFile, write_draft_file
from foredraft.integration.models.fingerprint import fingerprint
from foredraft.proposers.early_exit import MOST_UNREAD, EarlyExitProposer

NUM_LAYERS = 4


def exit_model(num_layers: int = NUM_LAYERS, vocab_size: int = TOY_VOCAB) -> LlamaForCausalLM:
    """The toy model with deeper layers that say less and less: an early state is right now and then.

    Its norms have weights, so that a norm more or less changes its choices.
    """
    return fading(toy_model(num_layers, vocab_size))


def fading(model: LlamaForCausalLM) -> LlamaForCausalLM:
    """Make each layer of ``model`` say less than the one before, and give its norms weights."""
    generator = torch.Generator().manual_seed(4)
    for name, weight in model.named_parameters():
        if "norm" in name:
            weight.mul_(1 + 0.5 * torch.randn(weight.shape, generator=generator))
    for depth, layer in enumerate(model.model.layers):
        for weight in (layer.self_attn.o_proj.weight, layer.mlp.down_proj.weight):
            weight.mul_(0.6**depth)
    return model


def trained_exit(
    model: LlamaForCausalLM,
    exit_layer: int,
    *,
    num_blocks: int = 1,
    first_block: int | None = None,
    reads_states: bool = False,
    head_ids: Tensor | None = None,
    **values: Any,
) -> DraftFile:
    """What training for ``model`` could have written: blocks of its own, from ``exit_layer`` on by default.

    With as many plain blocks as layers follow, it is the rest of the model itself.
    """
    first = exit_layer if first_block is None else first_block
    blocks = model.model.layers[first : first + num_blocks].state_dict()
    tensors = {f"layers.{name}": tensor.clone() for name, tensor in blocks.items()}
    tensors["norm.weight"] = model.model.norm.weight.clone()
    size = model.config.hidden_size
    if reads_states:
        weights = torch.rand(2, size, generator=torch.Generator().manual_seed(5)) + 0.5
        weights *= _size_at_exit(model, exit_layer)
        tensors["embed_norm.weight"], tensors["state_norm.weight"] = weights[0], 0.2 * weights[1]
        tensors["input_proj.weight"] = torch.eye(size).repeat(1, 2)
    head_ids = torch.arange(model.config.vocab_size) if head_ids is None else head_ids
    tensors[HEAD_WEIGHT] = model.lm_head.weight[head_ids].clone()
    given: dict[str, Any] = {
        "kind": "exit",
        "target": "toy",
        "target_fingerprint": fingerprint(model.named_parameters()),
        "reads_states": reads_states,
        "layers_config": model.config.to_dict() | {"num_hidden_layers": num_blocks},
        "tensors": tensors,
        "head_ids": head_ids,
        "exit_layer": exit_layer,
    }
    return DraftFile(**(given | values))


def _size_at_exit(model: LlamaForCausalLM, exit_layer: int) -> float:
    states = model(torch.arange(6)[None], output_hidden_states=True).hidden_states[exit_layer]
    return float(states.pow(2).mean().sqrt())


def trained_head(file: DraftFile, target: ForwardPass) -> TrainedHead:
    assert file.exit_layer is not None
    return TrainedHead(file, file.exit_layer, target, "early_exit.head")


def reads_states(head: ExitHead) -> bool:
    return isinstance(head, TrainedHead) and head._input_proj is not None


def exit_target(prepared: ForwardPass, head: ExitHead, num_rows: int, capacity: int = 256) -> SlotDecoder:
    """The target with a place for what ``head`` keeps."""
    return SlotDecoder(
        prepared,
        num_rows,
        capacity,
        512,
        TOY_VOCAB,
        keep_states=MOST_UNREAD if reads_states(head) else 0,
        exit_head=head if isinstance(head, TrainedHead) else None,
    )


def exit_engine(
    prepared: ForwardPass,
    head: ExitHead,
    num_rows: int = 4,
    num_draft_tokens: int = 3,
    *,
    min_confidence: float = 0.0,
    proposer: type[EarlyExitProposer] = EarlyExitProposer,
    **options: object,
) -> EmbeddedEngine:
    """An engine that drafts with ``head``, whose logits stand for all tokens."""
    target = exit_target(prepared, head, num_rows)
    drafting = proposer(
        ExitDecoder(target, head), reads_states=reads_states(head), min_confidence=min_confidence
    )
    return make_engine(target, drafting, num_draft_tokens, **options)


class ReferenceHead:
    """A head computed by transformers over the whole text: for every token anew, without any cache."""

    def __init__(self, model: LlamaForCausalLM, file: DraftFile) -> None:
        names = ("embed_norm.weight", "state_norm.weight", "input_proj.weight", HEAD_WEIGHT)
        self.file, self.model = file, model
        layers = {name: tensor for name, tensor in file.tensors.items() if name not in names}
        config = LlamaConfig(**(file.layers_config | {"vocab_size": 1}))
        self.layers = LlamaModel(config).eval().requires_grad_(False)
        assert self.layers.load_state_dict(layers, strict=False).missing_keys == ["embed_tokens.weight"]

    def hidden(self, committed: Sequence[int], drafted: Sequence[int], own: Tensor | None = None) -> Tensor:
        """What the head returns for each token, [T, H].

        Args:
            own: [drafted, H], what it returned for the newest token and all drafted ones but the last.
        """
        return self.layers(inputs_embeds=self.given(committed, drafted, own)[None]).last_hidden_state[0]

    def given(
        self, committed: Sequence[int], drafted: Sequence[int] = (), own: Tensor | None = None
    ) -> Tensor:
        """What goes into the head's first layer, [T, H]."""
        ids = torch.tensor([[*committed, *drafted]])
        states = self.model(ids, output_hidden_states=True).hidden_states
        at_exit = states[self.file.exit_layer][0]
        if not self.file.reads_states:
            return at_exit
        num_known = len(committed) - 1  # the newest token's own last state does not exist when it drafts
        last = torch.cat([torch.zeros_like(at_exit[:1]), states[-1][0, :num_known]])
        last = last if own is None else torch.cat([last, own])
        fused = torch.cat([self._normed(at_exit, "embed_norm"), self._normed(last, "state_norm")], dim=-1)
        return fused @ self.file.tensors["input_proj.weight"].T

    def _normed(self, values: Tensor, name: str) -> Tensor:
        mean_square = values.pow(2).mean(-1, keepdim=True)
        scale = torch.rsqrt(mean_square + self.layers.config.rms_norm_eps)
        return values * scale * self.file.tensors[f"{name}.weight"]

    def draft(self, committed: Sequence[int], length: int) -> list[int]:
        """The likeliest tokens, one after the other."""
        drafted: list[int] = []
        own: Tensor | None = None
        for _ in range(length):
            newest = self.hidden(committed, drafted, own)[-1:]
            own = newest if own is None else torch.cat([own, newest])
            drafted.append(int(self.file.head_ids[(newest @ self.file.tensors[HEAD_WEIGHT].T).argmax()]))
        return drafted


def exit_config(head: Path | str | None = None, exit_layer: int | None = None, **values: Any) -> Config:
    """Of a small engine that leaves a toy early."""
    options = {"head": None if head is None else str(head), "exit_layer": exit_layer}
    given: dict[str, Any] = {
        "model": "toy",
        "dtype": "float32",
        "device": "cpu",
        "proposer": "early_exit",
        "early_exit": options | values.pop("early_exit", {}),
        "engine": {"max_num_seqs": 3, "max_model_len": 128},
    }
    return Config(**(given | values))


def written_exit(folder: Path, file: DraftFile, name: str = EXIT_FILE) -> Path:
    """The folder, with the file in it."""
    write_draft_file(folder / name, file)
    return folder


def refusal(config: Config, target: Target) -> str:
    """The one line that says why no engine is built."""
    with pytest.raises(UserError) as caught:
        build_engine(config, target)
    message = str(caught.value)
    assert "\n" not in message
    return message


def decoder_of(engine: EmbeddedEngine) -> SlotDecoder:
    """Its decoder, where that has slots."""
    assert isinstance(engine.decoder, SlotDecoder)
    return engine.decoder
