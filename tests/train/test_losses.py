"""The fused loss against the plain one: value and gradient."""

import pytest
import torch
from torch import Tensor

from foredraft.integration.train.losses import ROWS, LossForm, fused_loss, reference_loss

HIDDEN, VOCAB, KEPT = 16, 60, 40


def inputs(num_positions: int, kept: int = KEPT, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """hidden, target_states, log-normalisers over the whole vocabulary, the kept rows of the head."""
    generator = torch.Generator().manual_seed(0)
    head = torch.randn(VOCAB, HIDDEN, generator=generator) * scale
    hidden = torch.randn(num_positions, HIDDEN, generator=generator)
    states = torch.randn(num_positions, HIDDEN, generator=generator)
    return hidden.requires_grad_(), states, (states @ head.T).logsumexp(-1), head[:kept]


def value_and_gradient(loss: object, given: tuple[Tensor, ...], form: LossForm) -> tuple[Tensor, Tensor]:
    value = loss(*given, form)  # type: ignore[operator]
    (gradient,) = torch.autograd.grad(3.0 * value, given[0])
    return value.detach(), gradient


@pytest.mark.parametrize("form", ["kl", "tv"])
@pytest.mark.parametrize(
    ("num_positions", "kept", "scale"),
    [(1, KEPT, 1.0), (2 * ROWS + 3, KEPT, 1.0), (50, VOCAB, 1.0), (50, KEPT, 30.0)],
    ids=["one position", "several blocks of rows", "mass 1", "nearly one-hot"],
)
def test_fused_equals_reference(form: LossForm, num_positions: int, kept: int, scale: float) -> None:
    given = inputs(num_positions, kept, scale)
    value, gradient = value_and_gradient(fused_loss, given, form)
    expected, expected_gradient = value_and_gradient(reference_loss, given, form)
    # Both sum float32 in different orders; with scale 30 logits are in the hundreds.
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-3, atol=1e-5)


def test_the_mass_is_below_one_in_these_cases() -> None:
    """Else the cases would not tell mass * softmax from softmax."""
    _, states, log_normalisers, head = inputs(50)
    mass = (states @ head.T - log_normalisers[:, None]).exp().sum(-1)
    assert mass.min() < 0.5
    assert mass.max() <= 1.0 + 1e-5


@pytest.mark.parametrize("form", ["kl", "tv"])
def test_bfloat16_products_stay_close(form: LossForm) -> None:
    hidden, states, log_normalisers, head = inputs(200)
    value, gradient = value_and_gradient(
        fused_loss, (hidden, states, log_normalisers, head.to(torch.bfloat16)), form
    )
    expected, expected_gradient = value_and_gradient(
        reference_loss, (hidden, states, log_normalisers, head), form
    )
    assert gradient.dtype == torch.float32
    torch.testing.assert_close(value, expected, rtol=0.02, atol=0.02)
    assert torch.cosine_similarity(gradient.flatten(), expected_gradient.flatten(), dim=0) > 0.999


def test_total_variation_is_zero_where_the_laws_agree() -> None:
    hidden, _, _, head = inputs(20, VOCAB)
    states = hidden.detach()
    log_normalisers = (states @ head.T).logsumexp(-1)
    assert fused_loss(hidden, states, log_normalisers, head, "tv").item() < 1e-5
