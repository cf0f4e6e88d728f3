"""The exact law of short outputs of a table, and how far a sample of outputs is from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from scipy.stats import chi2
from torch import Tensor

from foredraft.integration.sampling_params import SamplingParams
from foredraft.verifier.reference import reference_law

ALARM = 1e-6
Output = tuple[int, ...]


def output_law(table: Tensor, start: int, params: SamplingParams, length: int) -> dict[Output, float]:
    """The probability of every possible output of ``length`` tokens after the token ``start``."""
    law: dict[Output, float] = {(): 1.0}
    for _ in range(length):
        law = {
            (*output, token): probability * share
            for output, probability in law.items()
            for token, share in enumerate(_token_law(table, (start, *output), params))
            if share > 0
        }
    return law


def _token_law(table: Tensor, prefix: Sequence[int], params: SamplingParams) -> list[float]:
    law: list[float] = reference_law(
        table[prefix[-1]], params.temperature, params.top_k, params.top_p, params.min_p
    ).tolist()
    return law


def chi_square_p(counts: Counter[Output], law: dict[Output, float]) -> float:
    """How likely counts this far from the law are. Rare outputs are counted together, 5 expected at least."""
    if not set(counts) <= set(law):
        return 0.0
    total = counts.total()
    statistic, bins, expected, seen = 0.0, 0, 0.0, 0
    for output in sorted(law, key=lambda output: law[output]):
        expected, seen = expected + law[output] * total, seen + counts[output]
        if expected >= 5:
            statistic, bins = statistic + (seen - expected) ** 2 / expected, bins + 1
            expected, seen = 0.0, 0
    return float(chi2.sf(statistic, bins - 1))
