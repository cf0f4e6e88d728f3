"""What stands behind ``proposer: draft`` with a whole model: vLLM's own, beside the target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from vllm.compilation.backends import set_model_tag
from vllm.config import get_layers_from_vllm_config
from vllm.config.utils import replace
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.model_loader import get_model

from foredraft.integration.config import Config
from foredraft.integration.vllm.draft_config import draft_model_config
from foredraft.integration.vllm.paged.backing import Backing
from foredraft.integration.vllm.paged.decoder import PagedDecoder
from foredraft.integration.vllm.paged.step import Step
from foredraft.integration.vllm.paged.warm_up import warm_up
from foredraft.proposers import create_proposer

PREFIX = "foredraft_draft"


class WholeModel:
    """See ``decoder.Body``. Its keys and values lie in the target's blocks, in layers of their own."""

    def __init__(self, config: Config, vllm_config: Any) -> None:
        model_config = draft_model_config(config, vllm_config.model_config)
        before = set(get_layers_from_vllm_config(vllm_config, Attention))
        with set_model_tag(PREFIX):
            self._model = get_model(
                vllm_config=replace(vllm_config, quant_config=None, model_config=model_config), prefix=PREFIX
            )
        self.layer_names = [
            name for name in get_layers_from_vllm_config(vllm_config, Attention) if name not in before
        ]
        self.max_len: int = model_config.max_model_len
        self.vocab_size: int = model_config.get_vocab_size()

    def run(self, input_ids: Tensor, positions: Tensor, states: Tensor | None) -> Tensor:
        """See ``Body``; a whole model reads no states."""
        hidden: Tensor = self._model(input_ids=input_ids, positions=positions)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """[N, H] -> [N, V]."""
        logits: Tensor = self._model.compute_logits(hidden)
        return logits


class DraftBacking(Backing):
    """A small model that reads what was committed whenever it drafts: see ``proposers.draft_model``."""

    def __init__(self, config: Config, vllm_config: Any) -> None:
        super().__init__()
        self._config, self._vllm_config = config, vllm_config
        self._body: WholeModel | None = None
        self._decoder: PagedDecoder | None = None

    def load(self, target: Any) -> None:
        """See ``Backing``."""
        self._body = WholeModel(self._config, self._vllm_config)

    def attach(self, runner: Any) -> None:
        """See ``Backing``."""
        assert self._body is not None, "load goes before"
        self._decoder = PagedDecoder(self._body, runner)
        options = {
            "decoder": self._decoder,
            "head_ids": self._head_ids(self._body, runner.device),
            "min_confidence": self._config.draft.min_confidence,
        }
        self.proposer = create_proposer("draft", options)

    def warm_up(self) -> None:
        """See ``Backing``."""
        assert self._body is not None, "load goes before"
        warm_up(self._body, self._vllm_config)

    def begin(self, step: Step, places: Mapping[int, int], num_committed: Mapping[int, int]) -> None:
        """See ``Backing``. What lies in the draft's rows is known to the proposer."""
        assert self._decoder is not None, "attach goes before"
        self._decoder.begin(step, places, {})

    def _head_ids(self, body: WholeModel, device: torch.device) -> Tensor | None:
        """The tokens of its logits, where it is padded to fewer or more tokens than the target."""
        vocab_size: int = self._vllm_config.model_config.get_vocab_size()
        if body.vocab_size == vocab_size:
            return None
        return torch.arange(min(body.vocab_size, vocab_size), device=device)
