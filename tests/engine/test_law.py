"""The sampling law of whole short outputs, through the whole engine, against the exact law of a table.

Chi-square over complete outputs, alarm at p < 1e-6: 30 tests give a false alarm once in 30 000 runs, and
seeds are fixed, so a run that passed passes again. The default suite draws 20 000 outputs per case, the
slow one 100 000, where total variation per position stays below 0.01 (noise is about 0.003).
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import pytest
import torch
from drawing import DrawingProposer
from scipy.stats import chi2
from torch import Tensor
from toys import ScriptedProposer, TableDecoder, make_engine

from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers import Proposer
from foredraft.proposers.ngram import NgramProposer
from foredraft.verifier.reference import reference_law

# One token, so that the very first step drafts: a block is as long as the output allows, 2 or 3 drafts.
VOCAB, PROMPT = 8, (5,)
ALARM = 1e-6
# Outputs of each test: how long, how many.
SIZES = pytest.mark.parametrize(
    ("length", "num_outputs"), [(3, 20_000), pytest.param(4, 100_000, marks=pytest.mark.slow)]
)


def random_table(seed: int, spread: float = 1.0) -> Tensor:
    return torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(seed)) * spread


TARGET = random_table(1)
TARGET[:, 6] = -math.inf  # never generated
DRAFT = random_table(2)
CONTROLS = {
    "top-p at a temperature": SamplingParams(temperature=0.5, top_p=0.8),
    "top-k": SamplingParams(top_k=3),
    "min-p": SamplingParams(min_p=0.2),
    "penalties": SamplingParams(presence_penalty=0.7, frequency_penalty=0.4, repetition_penalty=1.3),
    "bias and allowed tokens": SamplingParams(
        logit_bias={0: 1.5, 4: -2.0}, allowed_token_ids=[0, 1, 3, 4, 6], temperature=0.8
    ),
}


# ---- what the outputs should be


def token_law(prefix: Sequence[int], params: SamplingParams) -> list[float]:
    """The law of the next token, worked out in float64 apart from the code under test."""
    logits = TARGET[prefix[-1]].double().clone()
    output = prefix[len(PROMPT) :]
    for token, bias in params.logit_bias.items():
        logits[token] += bias
    for token in set(prefix):
        logits[token] *= params.repetition_penalty if logits[token] < 0 else 1 / params.repetition_penalty
    for token, count in Counter(output).items():
        logits[token] -= params.frequency_penalty * count + params.presence_penalty
    if params.allowed_token_ids is not None:
        for token in set(range(VOCAB)) - set(params.allowed_token_ids):
            logits[token] = -math.inf
    law: list[float] = reference_law(
        logits, params.temperature, params.top_k, params.top_p, params.min_p
    ).tolist()
    return law


def output_law(params: SamplingParams, length: int) -> dict[tuple[int, ...], float]:
    """The probability of every possible output of ``length`` tokens."""
    law: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(length):
        law = {
            (*output, token): probability * share
            for output, probability in law.items()
            for token, share in enumerate(token_law((*PROMPT, *output), params))
            if share > 0
        }
    return law


def chi_square_p(counts: Counter[tuple[int, ...]], law: dict[tuple[int, ...], float]) -> float:
    """How likely counts this far from the law are. Rare outputs are counted together, 5 expected at least."""
    total = counts.total()
    statistic, bins, expected, seen = 0.0, 0, 0.0, 0
    ordered = sorted(law, key=lambda output: law[output])
    for output in ordered:
        expected, seen = expected + law[output] * total, seen + counts[output]
        if expected >= 5:
            statistic, bins = statistic + (seen - expected) ** 2 / expected, bins + 1
            expected, seen = 0.0, 0
    return float(chi2.sf(statistic, bins - 1))


def largest_variation(counts: Counter[tuple[int, ...]], law: dict[tuple[int, ...], float]) -> float:
    """Total variation of single positions from their law, the worst of them."""

    def marginal(weights: dict[tuple[int, ...], float], pos: int) -> list[float]:
        sums = [0.0] * VOCAB
        for output, weight in weights.items():
            sums[output[pos]] += weight
        return [value / sum(sums) for value in sums]

    pairs = [(marginal(dict(counts), pos), marginal(law, pos)) for pos in range(len(next(iter(law))))]
    return max(sum(abs(a - b) for a, b in zip(seen, exact, strict=True)) / 2 for seen, exact in pairs)


def draw(
    params: SamplingParams,
    proposer: Proposer | None,
    length: int,
    num_outputs: int,
    rule: Literal["block", "token"] = "block",
) -> Counter[tuple[int, ...]]:
    """Outputs of ``length`` tokens, 128 of each request."""
    engine = make_engine(TableDecoder(TARGET, num_rows=512, capacity=8), proposer, 3, rule=rule)
    params = params.model_copy(update={"n": 128, "max_tokens": length})
    finished = engine.generate([PROMPT] * math.ceil(num_outputs / 128), params)
    assert engine.metrics.num_proposer_faults == 0
    if isinstance(proposer, NgramProposer):
        assert engine.metrics.num_drafted_tokens > 0
    elif proposer is not None:
        assert len(engine.metrics.verified_per_position) == length - 1, (
            "blocks of the full length were drafted"
        )
    return Counter(tuple(output.token_ids) for request in finished for output in request.outputs)


def assert_law(counts: Counter[tuple[int, ...]], params: SamplingParams) -> None:
    law = output_law(params, len(next(iter(counts))))
    assert set(counts) <= set(law), "an output of probability 0 was generated"
    assert chi_square_p(counts, law) > ALARM
    assert largest_variation(counts, law) < (0.01 if counts.total() >= 100_000 else 0.02)


# ---- proposers


def likeliest_chain(tokens: Sequence[int]) -> list[int]:
    chain = [int(TARGET[tokens[-1]].argmax())]
    while len(chain) < 4:
        chain.append(int(TARGET[chain[-1]].argmax()))
    return chain


def point_mass(kind: str) -> Proposer | None:
    if kind == "none":
        return None
    if kind == "ngram":
        return NgramProposer(1, 3)
    num_right = {"oracle": 1_000, "partial": 1, "wrong": 0}[kind]
    return ScriptedProposer(likeliest_chain, VOCAB, num_right=num_right, lengths=[3, 1, 2, 0, 3])


# ---- the law


@SIZES
@pytest.mark.parametrize("kind", ["none", "ngram", "oracle", "partial", "wrong"])
def test_point_mass_drafts(kind: str, length: int, num_outputs: int) -> None:
    """Deterministic drafts are accepted with the target's probability, at every place (F17, F19, F21)."""
    params = SamplingParams()
    assert_law(draw(params, point_mass(kind), length, num_outputs), params)


@SIZES
@pytest.mark.parametrize("controls", CONTROLS)
def test_controls_with_point_mass_drafts(controls: str, length: int, num_outputs: int) -> None:
    """The law is that of the processed target, not of its raw logits (F11, F29, F31, F33)."""
    params = CONTROLS[controls]
    assert_law(draw(params, point_mass("oracle"), length, num_outputs), params)


@SIZES
@pytest.mark.parametrize("rule", ["block", "token"])
@pytest.mark.parametrize("form", ["dense", "sparse", "shared", "mixed"])
def test_drawn_drafts(form: str, rule: Literal["block", "token"], length: int, num_outputs: int) -> None:
    """Drafts from another law than the target's, reported in every form (F11, F15)."""
    proposer = DrawingProposer(DRAFT, form, top_k=3 if form == "sparse" else 0)
    params = CONTROLS["top-p at a temperature"] if form == "dense" else SamplingParams()
    assert_law(draw(params, proposer, length, num_outputs, rule), params)


@SIZES
@pytest.mark.parametrize("controls", ["penalties", "min-p"])
def test_controls_with_drawn_drafts(controls: str, length: int, num_outputs: int) -> None:
    params = CONTROLS[controls]
    assert_law(draw(params, DrawingProposer(DRAFT), length, num_outputs), params)


def test_greedy_takes_the_likeliest_token_whatever_the_draft_reports() -> None:
    """F13: a draft with probabilities must not let a token through that greedy decoding would not choose."""
    params = SamplingParams(temperature=0)
    assert set(draw(params, DrawingProposer(DRAFT), 4, 256)) == {tuple(likeliest_chain(PROMPT))}


# ---- what is known to be wrong must be noticed


@pytest.mark.parametrize("rule", ["block", "token"])
@pytest.mark.parametrize(
    "proposer",
    [
        DrawingProposer(DRAFT, temperature=1.0, reported_temperature=0.5),
        DrawingProposer(DRAFT, greedy=True),
        DrawingProposer(DRAFT, top_k=2, applies_top_k=False),
    ],
    ids=["drawn at another temperature", "greedy reported as softmax", "top-k reported, not applied"],
)
def test_wrong_reports_are_flagged(proposer: DrawingProposer, rule: Literal["block", "token"]) -> None:
    counts = draw(SamplingParams(), proposer, 3, 10_000, rule)
    assert chi_square_p(counts, output_law(SamplingParams(), 3)) < ALARM


def test_another_temperature_is_flagged() -> None:
    """The power of the check itself: 0.9 does not pass for 1."""
    counts = draw(SamplingParams(temperature=0.9), None, 3, 20_000)
    assert chi_square_p(counts, output_law(SamplingParams(), 3)) < ALARM
