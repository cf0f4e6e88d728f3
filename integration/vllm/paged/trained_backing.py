"""What stands behind a trained exit head, or a trained draft."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch

from foredraft.integration.errors import UserError
from foredraft.integration.models.draft_file import DraftFile
from foredraft.integration.vllm.paged.backlog import Backlog
from foredraft.integration.vllm.paged.decoder import Body
from foredraft.integration.vllm.paged.exit_backing import ExitBacking
from foredraft.integration.vllm.paged.passes import PagedPasses
from foredraft.integration.vllm.paged.states import PagedStates
from foredraft.integration.vllm.paged.step import Step
from foredraft.integration.vllm.paged.trained_exit import TrainedExit
from foredraft.integration.vllm.paged.trained_layers import load_trained_layers


class TrainedBacking(ExitBacking):
    """Trained layers on the target's first ones, or on its embedding.

    A trained draft is an exit head that takes over at layer 0: its keys and values too are written for every
    token that the target reads, lie in the same blocks and come along with a prefix-cache hit. While nothing
    drafts they are written late (``Backlog``).

    Args:
        named: option and file, for messages.
    """

    def __init__(self, file: DraftFile, named: str, vllm_config: Any, min_confidence: float) -> None:
        super().__init__(vllm_config, min_confidence)
        self._file, self._named = file, named
        self._exit_layer = file.exit_layer or 0
        self._exit: TrainedExit | None = None
        self._passes: PagedPasses | None = None
        self._states = PagedStates(width=None) if file.reads_states else None
        self.hidden_states = self._states
        self._backlog = Backlog(self._states)

    def make_body(self, target: Any) -> Body:
        """See ``ExitBacking``."""
        layers = load_trained_layers(self._file, target, self.vllm_config, self._named)
        if self._exit_layer:
            target.set_aux_hidden_state_layers((self._exit_layer,))
        self._exit = TrainedExit(target, self._exit_layer, layers, self.vllm_config)
        return self._exit

    def head_options(self) -> dict[str, Any]:
        """See ``ExitBacking``."""
        device = self.vllm_config.device_config.device
        return {"head_ids": self._file.head_ids.to(device), "reads_states": self._states is not None}

    def attach(self, runner: Any) -> None:
        """See ``Backing``."""
        super().attach(runner)
        assert self._exit is not None, "load goes before"
        _check_attention(runner, self._exit)
        runner.use_aux_hidden_state_outputs = self._exit_layer > 0
        self._passes = PagedPasses(runner, self._exit.trained_names)

    @torch.inference_mode()
    def read(self, step: Step) -> None:
        """Write the keys and values of the trained layers, and keep the states that come next; now or later.

        Layers that attend to each other's outputs need vLLM's metadata of the pass, so nothing waits there.
        """
        assert self._exit is not None, "load goes before"
        assert self._passes is not None, "attach goes before"
        attends = len(self._exit.trained_names) > 1
        if not attends and self._backlog.takes(step):
            self._backlog.add(step, self._exit.given(step))
            if self._backlog.is_full:
                self._catch_up()
            return
        self._catch_up()
        before = None if self._states is None else self._states.before(step)
        with self._passes.running(step.common) if attends else nullcontext():
            self._exit.store(self._exit.given(step), before, step.positions, step.slots)
        if self._states is not None:
            self._states.write(step)
        self._backlog.read_at_once(step)

    def _catch_up(self) -> None:
        """Read what waits."""
        if not self._backlog:
            return
        assert self._exit is not None, "load goes before"
        waiting = self._backlog.take()
        if self._states is not None and waiting.hidden is not None:
            self._states.write_passes(waiting.slots, waiting.hidden, waiting.num_rows)
        self._exit.store(waiting.given, waiting.before, waiting.positions, waiting.slots)

    @torch.inference_mode()
    def begin(self, step: Step, places: Mapping[int, int], num_committed: Mapping[int, int]) -> None:
        """See ``Backing``."""
        self._catch_up()
        super().begin(step, places, num_committed)
        if self._states is not None:
            self._states.begin(step, places)


def _check_attention(runner: Any, body: TrainedExit) -> None:
    """Refuse attention that writes keys and values only together with attending.

    Raises:
        UserError: it does.
    """
    context = runner.compilation_config.static_forward_context
    for name in body.trained_names:
        backend = context[name].attn_backend
        if backend.forward_includes_kv_cache_update:
            raise UserError(f"attention_backend: {backend.get_name()} does not work with trained layers")
