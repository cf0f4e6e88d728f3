"""Drawing by weight: the law, the impossible tokens, and how little rounding changes."""

import math

import pytest
import torch

from foredraft.verifier import PADDING, Purpose, categorical, greedy_tokens, uniforms
from foredraft.verifier.choice import FAN_OUT

ALARM = 1e-6


def draw(weights, keys=None):
    keys = torch.arange(len(weights)) if keys is None else keys
    zeros = torch.zeros_like(keys)
    return categorical(weights, keys, zeros, zeros, Purpose.TARGET)


def naive_draw(weights, key):
    """Gumbel-max down the tree, one row in plain Python: the noises of the lowest level come first."""
    levels = [weights]
    while len(levels[-1]) > 2 * FAN_OUT:
        below = levels[-1]
        levels.append([sum(below[start : start + FAN_OUT]) for start in range(0, len(below), FAN_OUT)])
    one, zero = torch.tensor([key]), torch.tensor([0])
    count = FAN_OUT * (len(levels) - 1) + len(levels[-1])
    noise = uniforms(one, zero, zero, Purpose.TARGET, count)[0].tolist()
    gumbel = [-math.log(-math.log(uniform)) for uniform in noise]

    def best(values, noises):
        scores = [
            math.log(v) + g if v > 0 else -math.inf
            for v, g in zip(values, noises[: len(values)], strict=True)
        ]
        return scores.index(max(scores))

    chosen = 0
    for level in reversed(range(len(levels))):
        start = chosen * FAN_OUT
        stop = start + (FAN_OUT if level < len(levels) - 1 else len(levels[level]))
        chosen = start + best(levels[level][start:stop], gumbel[level * FAN_OUT :])
    return chosen


@pytest.mark.parametrize("vocab_size", [1, 2, 3, 5, 7, 16, 37, 200])
def test_law_and_impossible_tokens(vocab_size, p_value):
    """Sizes that no block size divides; a third of the weights is 0, and so is a whole block."""
    generator = torch.Generator().manual_seed(vocab_size)
    weights = torch.rand(vocab_size, generator=generator) * 10
    weights[2::3] = 0
    if vocab_size > 3 * FAN_OUT:
        weights[FAN_OUT : 2 * FAN_OUT] = 0
    counts = draw(weights.expand(100_000, -1)).bincount(minlength=vocab_size).tolist()
    assert p_value(counts, (weights / weights.sum()).tolist()) > ALARM or vocab_size == 1
    assert sum(counts) == 100_000


@pytest.mark.parametrize("vocab_size", [2, 50, 131, 9000])
def test_equals_the_plain_computation(vocab_size):
    weights = torch.rand(300, vocab_size, generator=torch.Generator().manual_seed(0)).double()
    weights[weights < 0.3] = 0
    weights[:, 0] += 0.01
    expected = [naive_draw(row, key) for key, row in enumerate(weights.tolist())]
    assert draw(weights).tolist() == expected


def test_scale_of_the_weights_does_not_matter():
    weights = torch.rand(500, 40, generator=torch.Generator().manual_seed(0))
    assert torch.equal(draw(weights), draw(weights * 1e-20))


def test_small_changes_of_the_weights_rarely_change_the_token():
    """Of 20 000 tokens about 20 000 x 1e-4 may move; walking up a cumulative sum would move hundreds."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(20_000, 400, generator=generator)
    rounded = weights * (1 + 1e-4 * torch.randn(20_000, 400, generator=generator))
    assert int((draw(weights) != draw(rounded)).sum()) < 20


def test_rows_without_any_weight_give_padding():
    weights = torch.tensor([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [math.nan, math.nan, math.nan]])
    assert draw(weights).tolist() == [PADDING, 1, PADDING]


@pytest.mark.parametrize("vocab_size", [1, 2, 5, 64, 131, 1000])
def test_greedy_takes_the_lowest_of_the_likeliest(vocab_size):
    logits = torch.randint(-3, 1, (200, vocab_size), generator=torch.Generator().manual_seed(0)).float()
    logits[logits == -3] = -math.inf
    logits[:, -1] = -5.0
    expected = [row.index(max(row)) for row in logits.tolist()]
    assert greedy_tokens(logits).tolist() == expected
    assert greedy_tokens(torch.full((1, vocab_size), -math.inf)).tolist() == [PADDING]
