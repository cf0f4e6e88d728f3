"""Linear layers whose cost is nearly the same for 1 and for 8 tokens: what makes verifying nearly free."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Linear = Callable[[Tensor], Tensor]

# oneDNN lays the weights out for about this many tokens. Measured on 2 cores (avx512_bf16, SmolLM2-135M,
# bfloat16): a whole pass takes 20 ms for 1 token and 22 ms for 6; with the layout for 1 token 22 and 24.
BATCH_HINT = 8


def make_linear(weight: Tensor, bias: Tensor | None) -> Linear:
    """A function [T, in] -> [T, out] for weight [out, in]; packed for oneDNN where the CPU build has it."""
    if can_pack(weight):
        return PackedLinear(weight, bias)
    return lambda hidden: F.linear(hidden, weight, bias)


def can_pack(weight: Tensor) -> bool:
    """Whether oneDNN takes this weight in a packed layout."""
    packable = weight.dtype == torch.float32 or (
        weight.dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )
    return weight.device.type == "cpu" and torch.backends.mkldnn.is_available() and packable


class PackedLinear:
    """A weight reordered once, so that no call has to.

    Each output row comes out bit-equal whatever else is in the batch, from 2 tokens on; in float32 the
    kernel for a single token rounds differently, so a single token is computed as two.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), BATCH_HINT)
        self.bias = None if bias is None else bias.detach().contiguous()

    def __call__(self, hidden: Tensor) -> Tensor:
        if hidden.shape[0] == 1 and hidden.dtype == torch.float32:
            return self._apply(hidden.repeat(2, 1))[:1]
        return self._apply(hidden)

    def _apply(self, hidden: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(hidden, self.weight, self.bias, "none", [], "")  # type: ignore[no-any-return]
