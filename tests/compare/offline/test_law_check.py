"""Outputs drawn from the law pass, and those of samplers known to be wrong do not."""

import random
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from foredraft.integration.compare.offline.law_check import (
    ALARM,
    LawChecker,
    check_law_controls,
    token_law,
    unevenness,
)
from foredraft.integration.errors import UserError
from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers.decoder import Tokens
from foredraft.verifier.reference import reference_law

TABLE = torch.randn(12, 12, generator=torch.Generator().manual_seed(5)) * 1.5


class TableTarget:
    """The logits after a token are its row of ``TABLE``."""

    num_rows, num_layers, vocab_size, capacity, max_len = 1, 1, 12, 1000, 1000
    device = torch.device("cpu")

    def __init__(self) -> None:
        self.length = 0

    def forward(self, tokens: Tokens) -> Tensor:
        assert tokens.starts[0] == self.length, "reads on where the row ends"
        self.length += tokens.query_lens[0]
        return tokens.token_ids[:, None].float()

    def head(self, hidden: Tensor) -> Tensor:
        return TABLE[hidden[:, 0].long()]

    def truncate(self, row: int, length: int) -> None:
        self.length = length


def places(params: SamplingParams, drawn_with: SamplingParams, num_tokens: int = 6000) -> list[float]:
    """Places under ``params`` of outputs of 20 tokens that were drawn with other ones."""
    checker = LawChecker(TableTarget(), chunk=7)
    generator = np.random.default_rng(1)
    found = []
    for seed in range(num_tokens // 20):
        prompt = [seed % 12] * (1 + seed % 9)
        output: list[int] = []
        for _ in range(20):
            law = token_law(TABLE[(prompt + output)[-1]], drawn_with)
            output.append(int(generator.choice(12, p=law.numpy())))
        found += checker.places(prompt, output, params.model_copy(update={"seed": seed}))
    return found


CONTROLS = [
    SamplingParams(temperature=1.0),
    SamplingParams(temperature=0.7, top_p=0.8),
    SamplingParams(temperature=1.3, top_k=5),
    SamplingParams(temperature=1.0, min_p=0.1),
]


@pytest.mark.parametrize("params", CONTROLS)
def test_tokens_from_the_law_lie_evenly(params: SamplingParams) -> None:
    found = places(params, params)
    assert len(found) == 6000
    p_value = unevenness(found)
    assert p_value is not None
    assert p_value > 1e-3


@pytest.mark.parametrize(
    ("params", "drawn_with"),
    [
        (CONTROLS[0], SamplingParams(temperature=0.8)),
        (CONTROLS[0], SamplingParams(temperature=1.25)),
        (CONTROLS[0], CONTROLS[3]),
        (CONTROLS[1], SamplingParams(temperature=0.7)),
        (CONTROLS[2], SamplingParams(temperature=1.3, top_k=4)),
    ],
)
def test_tokens_from_another_law_do_not(params: SamplingParams, drawn_with: SamplingParams) -> None:
    p_value = unevenness(places(params, drawn_with))
    assert p_value is not None
    assert p_value < ALARM


@pytest.mark.parametrize("params", CONTROLS)
def test_the_law_is_that_of_the_reference(params: SamplingParams) -> None:
    for logits in TABLE:
        expected = reference_law(logits, params.temperature, params.top_k, params.top_p, params.min_p)
        assert torch.allclose(token_law(logits, params), expected, atol=1e-12)


def test_equally_likely_tokens_share_their_mass() -> None:
    """Without it, ties would pile up at one end."""

    class Flat(TableTarget):
        def head(self, hidden: Tensor) -> Tensor:
            return torch.zeros(len(hidden), 12)

    checker = LawChecker(Flat(), chunk=100)
    output = [3] * 2000
    p_value = unevenness(checker.places([1], output[:900], SamplingParams(temperature=1.0, seed=1)))
    assert p_value is not None
    assert p_value > 1e-3


def test_the_tail_is_that_of_chi_square() -> None:
    for shift in (0.0, 0.02, 0.05, 0.1):
        found = [min(random.Random(number).random() * (1 + shift), 0.9999) for number in range(2000)]
        counts = np.histogram(found, bins=10, range=(0, 1))[0]
        expected = stats.chisquare(counts).pvalue
        p_value = unevenness(found)
        assert p_value is not None
        assert np.log(p_value) == pytest.approx(np.log(expected), rel=0.12, abs=0.05)


@pytest.mark.parametrize("found", [[], [0.5] * 99])
def test_few_tokens_tell_nothing(found: Sequence[float]) -> None:
    assert unevenness(found) is None


@pytest.mark.parametrize(
    "control", [{"logit_bias": {1: 2.0}}, {"min_tokens": 3}, {"repetition_penalty": 1.1}]
)
def test_controls_that_the_check_does_not_follow_are_refused(control: dict[str, object]) -> None:
    check_law_controls(SamplingParams(temperature=0.7, top_p=0.9, stop=["x"]))
    with pytest.raises(UserError, match=f"--check-law: .*{next(iter(control))}"):
        check_law_controls(SamplingParams(**control))
