"""What steps cost: from the sizes of a GPU and two models, or as ``foredraft align`` measured it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from foredraft.scheduler.hardware_model.hardware import Gpu
from foredraft.scheduler.hardware_model.language_models import ModelSize

REACHED_BANDWIDTH = 0.8
REACHED_FLOPS = 0.6
"""Shares of what the maker states that good kernels reach; with them this is a rough guide, not a promise."""

VALUE_BYTES = 2
"""Of keys, values and what goes over the link: 16 bit."""

ALL_REDUCE_S = 8e-6
"""Latency of one; each layer needs two."""


class CostModel(Protocol):
    """Seconds of a step of so many requests."""

    def pass_s(self, num_requests: int, num_tokens: float) -> float:
        """The target's pass over ``num_tokens`` tokens of them together."""
        ...

    def draft_step_s(self, num_requests: int) -> float:
        """Drafting one token for each; 0 for a look-up."""
        ...

    def why_not(self, num_requests: int) -> str | None:
        """What keeps such a batch from being served; ``None`` = nothing."""
        ...


@dataclass(frozen=True)
class Roofline:
    """A pass takes as long as reading weights and cache, or computing, whichever is longer, plus overhead.

    Attributes:
        draft: ``None`` = a look-up that costs nothing.
        context: tokens of each request that attention looks back on.
        num_gpus: that share each layer (tensor parallel).
        weight_bytes: per weight.
        layer_overhead_s: seconds per layer that no kernel works: launches, gaps.
    """

    gpu: Gpu
    target: ModelSize
    draft: ModelSize | None
    context: int
    num_gpus: int = 1
    weight_bytes: float = 2.0
    layer_overhead_s: float = 10e-6

    def pass_s(self, num_requests: int, num_tokens: float) -> float:
        """See ``CostModel``."""
        return self._model_s(self.target, num_requests, num_tokens)

    def draft_step_s(self, num_requests: int) -> float:
        """See ``CostModel``."""
        return self._model_s(self.draft, num_requests, num_requests) if self.draft else 0.0

    def why_not(self, num_requests: int) -> str | None:
        """See ``CostModel``."""
        models = [self.target] + ([self.draft] if self.draft else [])
        needed = sum(
            model.num_params * self.weight_bytes + model.kv_values * VALUE_BYTES * self.context * num_requests
            for model in models
        )
        held = self.gpu.memory * self.num_gpus
        return None if needed <= held else f"needs {needed / 1e9:.0f} GB, {held / 1e9:.0f} GB are there"

    def _model_s(self, model: ModelSize, num_requests: int, num_tokens: float) -> float:
        kv_bytes = model.kv_values * VALUE_BYTES * self.context * num_requests
        read_bytes = model.params_read * self.weight_bytes + kv_bytes
        attention = 4 * model.num_layers * model.num_heads * model.head_dim * self.context
        computed = (2 * model.params_read + attention) * num_tokens
        memory_s = read_bytes / (self.gpu.bandwidth * REACHED_BANDWIDTH * self.num_gpus)
        compute_s = computed / (self.gpu.flops * REACHED_FLOPS * self.num_gpus)
        overhead_s = model.num_layers * self.layer_overhead_s
        return max(memory_s, compute_s) + overhead_s + self._link_s(model, num_tokens)

    def _link_s(self, model: ModelSize, num_tokens: float) -> float:
        if self.num_gpus == 1:
            return 0.0
        num_bytes = 2 * (self.num_gpus - 1) / self.num_gpus * num_tokens * model.hidden_size * VALUE_BYTES
        return 2 * model.num_layers * (ALL_REDUCE_S + num_bytes / self.gpu.link)


@dataclass(frozen=True)
class Measured:
    """Steps as they were measured at one batch size; see ``align.costs.Costs``.

    Attributes:
        step_s: seconds of a step without its drafting, by tokens drafted for each request, from 0.
        draft_s: seconds of drafting them.
    """

    batch_size: int
    step_s: Sequence[float]
    draft_s: Sequence[float]

    def pass_s(self, num_requests: int, num_tokens: float) -> float:
        """See ``CostModel``; interpolated."""
        sizes = self.batch_size * np.arange(1, len(self.step_s) + 1)
        return float(np.interp(num_tokens, sizes, self.step_s))

    def draft_step_s(self, num_requests: int) -> float:
        """See ``CostModel``: the slope over what was measured."""
        lengths = np.arange(len(self.draft_s))
        return float(lengths @ np.array(self.draft_s) / (lengths @ lengths))

    def why_not(self, num_requests: int) -> str | None:
        """See ``CostModel``."""
        return None if num_requests == self.batch_size else f"measured at batch size {self.batch_size} only"
