"""Which weights these are: the same in every dtype, another for other weights."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from toys import toy_model

from foredraft.integration.models.fingerprint import SIGNS_PER_TENSOR, fingerprint

Weights = dict[str, Tensor]


@pytest.fixture(scope="module")
def weights() -> Weights:
    return dict(toy_model(2).named_parameters())


def test_rounding_does_not_change_it(weights: Weights) -> None:
    """Also where float16 rounds to zero: the sign stays."""
    weights = weights | {"tiny": torch.randn(50) * 1e-9}
    expected = fingerprint(weights.items())
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        assert fingerprint((name, one.to(dtype)) for name, one in weights.items()) == expected


def test_the_order_does_not_matter(weights: Weights) -> None:
    assert fingerprint(reversed(weights.items())) == fingerprint(weights.items())


def moved(weights: Weights) -> Weights:
    """As a little more training would."""
    generator = torch.Generator().manual_seed(0)
    return {name: one + torch.randn(one.shape, generator=generator) * 1e-3 for name, one in weights.items()}


def swapped(weights: Weights) -> Weights:
    first, second = "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.gate_proj.weight"
    return weights | {first: weights[second], second: weights[first]}


@pytest.mark.parametrize(
    "change",
    [
        moved,
        swapped,
        lambda weights: dict(toy_model(2, seed=1).named_parameters()),
        lambda weights: dict(list(weights.items())[1:]),
        lambda weights: weights | {"lm_head.weight": weights["lm_head.weight"].t()},
        lambda weights: weights | {"lm_head.weight": weights["lm_head.weight"][:-1]},
    ],
    ids=["trained on", "swapped", "another seed", "one less", "transposed", "cut"],
)
def test_other_weights_have_another(weights: Weights, change: Callable[[Weights], Weights]) -> None:
    assert fingerprint(change(weights).items()) != fingerprint(weights.items())


def test_a_large_tensor_is_sampled_to_its_end() -> None:
    """All of it counts a little, not its first part alone."""
    large = torch.ones(100 * SIGNS_PER_TENSOR)
    other = large.clone()
    other[-200:] = -1
    assert fingerprint([("a", large)]) != fingerprint([("a", other)])
