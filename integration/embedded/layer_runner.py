"""The modules of a transformers model between its embedding and its head: one by one, or all at once."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from foredraft.integration.embedded.attention import Layout
from foredraft.integration.embedded.families import FAMILIES, Family


class LayerByLayer:
    """The layers and the final norm of a known family, called as the ``forward`` of its base model does."""

    why_whole_depth_only: str | None = None

    def __init__(self, model: Any, family: Family) -> None:
        base = model.base_model
        self._layers = list(getattr(base, family.layers))
        self._norm = getattr(base, family.norm)
        self._rotary = getattr(base, family.rotary) if family.rotary else None
        self._layer_types = model.config.layer_types if family.rotary_by_layer_type else None
        self._positions = getattr(base, family.learned_positions) if family.learned_positions else None

    def run(self, hidden: Tensor, layout: Layout, first: int, last: int) -> Tensor:
        """See ``forward.ForwardPass.layers``."""
        if not 0 <= first < last <= len(self._layers):
            raise ValueError(f"the model has layers [0, {len(self._layers)}), not [{first}, {last})")
        hidden, positions = hidden[None], layout.positions[None]
        if first == 0 and self._positions is not None:
            hidden = hidden + self._positions(positions)
        rotary = self._rotary_arguments(hidden, positions)
        for index in range(first, last):
            # No mask: our attention makes its own from the layout.
            hidden = self._layers[index](
                hidden, attention_mask=None, position_ids=positions, slot_layout=layout, **rotary[index]
            )
        return self.norm(hidden[0]) if last == len(self._layers) else hidden[0]

    def norm(self, hidden: Tensor) -> Tensor:
        """[N, H] -> [N, H]."""
        normed: Tensor = self._norm(hidden)
        return normed

    def _rotary_arguments(self, hidden: Tensor, positions: Tensor) -> list[dict[str, Any]]:
        """What each layer takes of the rotary tables of this pass."""
        if self._rotary is None:
            return [{}] * len(self._layers)
        if self._layer_types is None:
            return [{"position_embeddings": self._rotary(hidden, positions)}] * len(self._layers)
        tables = {kind: self._rotary(hidden, positions, kind) for kind in set(self._layer_types)}
        return [{"position_embeddings": tables[kind]} for kind in self._layer_types]


class WholeDepth:
    """A base model whose parts are not known: all of its layers and its final norm in one call."""

    def __init__(self, model: Any) -> None:
        self._base = model.base_model
        self._num_layers: int = model.config.num_hidden_layers
        self.why_whole_depth_only: str | None = (
            f"model type {model.config.model_type!r} runs its layers all at once only; "
            f"one by one run {', '.join(FAMILIES)}"
        )

    def run(self, hidden: Tensor, layout: Layout, first: int, last: int) -> Tensor:
        """See ``forward.ForwardPass.layers``."""
        if (first, last) != (0, self._num_layers):
            raise ValueError(f"layers [{first}, {last}) of {self._num_layers}: {self.why_whole_depth_only}")
        output = self._base(
            inputs_embeds=hidden[None],
            position_ids=layout.positions[None],
            use_cache=False,
            slot_layout=layout,
        )
        last_hidden: Tensor = output.last_hidden_state[0]
        return last_hidden

    def norm(self, hidden: Tensor) -> Tensor:
        """Not known either."""
        raise ValueError(f"the final norm: {self.why_whole_depth_only}")


def make_runner(model: Any) -> LayerByLayer | WholeDepth:
    """The finest way in which this model can be run."""
    family = FAMILIES.get(model.config.model_type)
    return WholeDepth(model) if family is None else LayerByLayer(model, family)
