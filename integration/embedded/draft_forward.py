"""The forward pass of a trained draft: its own few layers on its target's embedding and head."""

from __future__ import annotations

import torch
from torch import Tensor

from foredraft.integration.embedded.forward import ForwardPass
from foredraft.integration.embedded.trained_layers import TrainedLayers
from foredraft.integration.models.draft_file import DraftFile


class DraftForward(TrainedLayers):
    """See ``forward.ForwardPass``.

    Raises:
        UserError: as ``TrainedLayers``.
    """

    def __init__(
        self,
        draft: DraftFile,
        target: ForwardPass,
        device: torch.device,
        dtype: torch.dtype,
        named: str = "draft.model",
    ) -> None:
        super().__init__(draft, target, device, dtype, named)
        self._target = target

    def embed(self, token_ids: Tensor, states: Tensor | None = None) -> Tensor:
        """[T] -> [T, H]; ``states`` [T, H] are the target's, or on drafted tokens this draft's own."""
        embedded = self._target.embed(token_ids.to(self._target.device)).to(self.device, self.dtype)
        return self.combined(embedded, states)
