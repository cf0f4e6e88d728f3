"""What turns a state inside the target into tokens: the two kinds of exit head."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from foredraft.integration.embedded.attention import Layout
from foredraft.integration.embedded.forward import ForwardPass
from foredraft.integration.embedded.trained_layers import TrainedLayers
from foredraft.integration.models.draft_file import DraftFile


class ExitHead(Protocol):
    """From the target's state after ``exit_layer`` layers to logits."""

    exit_layer: int

    def forward(self, at_exit: Tensor, states: Tensor | None, layout: Layout) -> Tensor:
        """[T, H] -> [T, H] as ``head`` takes it.

        Args:
            states: [T, H], of each token the target's last hidden state one position before, or behind
                drafted tokens what this method returned there; only for a head that reads them.
        """
        ...

    def head(self, hidden: Tensor) -> Tensor:
        """[N, H] -> logits [N, S]."""
        ...


class OwnHead:
    """The target's own final norm and head, for models trained for it (LayerSkip, arXiv 2404.16710)."""

    def __init__(self, target: ForwardPass, exit_layer: int) -> None:
        self.exit_layer = exit_layer
        self._target = target

    def forward(self, at_exit: Tensor, states: Tensor | None, layout: Layout) -> Tensor:
        """See ``ExitHead``."""
        normed = self.exit_layer == self._target.num_layers
        return at_exit if normed else self._target.norm(at_exit)

    def head(self, hidden: Tensor) -> Tensor:
        """[N, H] -> [N, V]."""
        return self._target.head(hidden)


class TrainedHead(TrainedLayers):
    """What ``foredraft train exit`` wrote. See ``ExitHead``.

    Its layers look back: their keys and values of every token lie in the target's cache, behind those of the
    target's own layers.

    Raises:
        UserError: as ``TrainedLayers``.
    """

    def __init__(self, file: DraftFile, exit_layer: int, target: ForwardPass, named: str) -> None:
        super().__init__(file, target, target.device, target.dtype, named, target.num_layers)
        self.exit_layer = exit_layer

    def forward(self, at_exit: Tensor, states: Tensor | None, layout: Layout) -> Tensor:
        """See ``ExitHead``; keys and values of the tokens are written."""
        return self.layers(self.combined(at_exit, states), layout, 0, self.num_layers)

    def store(self, at_exit: Tensor, states: Tensor | None, layout: Layout) -> None:
        """Write the keys and values of tokens that the whole target reads; arguments as for ``forward``."""
        self.store_keys_values(self.combined(at_exit, states), layout)
