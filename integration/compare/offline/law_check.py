"""Is sampled output drawn from the target's law? Checked on the very outputs of the comparison.

Each output token has a law of its own, given what stands before it; one pass of the target over prompt and
output gives them all. A token is turned into a place between 0 and 1: the mass of all likelier tokens, and a
random share of its own (Rosenblatt, 1952). Under the law the places are independent and uniform, whatever was
written and however long it became. A verifier that keeps wrong drafts, or a proposer that reports another
distribution than it drew from, makes likely or unlikely tokens too frequent, and the places uneven.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from foredraft.integration.errors import UserError
from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers.decoder import Decoder, Tokens

ROW = 0
NUM_BINS = 10

ALARM = 1e-6
"""Below this the law is called wrong: never by chance, and soon enough by a fault."""

LAW_CONTROLS = (
    *("presence_penalty", "frequency_penalty", "repetition_penalty"),
    *("logit_bias", "allowed_token_ids", "bad_words", "min_tokens"),
)
"""Controls that change the law in ways the check does not follow."""


@dataclass(frozen=True)
class LawChecker:
    """Places of sampled tokens.

    Args:
        decoder: the target; no request may be running on it while a check runs.
        chunk: tokens per pass.
    """

    decoder: Decoder
    chunk: int

    def places(self, prompt_ids: Sequence[int], output: Sequence[int], params: SamplingParams) -> list[float]:
        """A number between 0 and 1 for each output token, uniform if it was drawn from the target's law."""
        token_ids = [*prompt_ids, *output[:-1]]
        shares = random.Random(repr((params.seed, len(token_ids))))
        found: list[float] = []
        try:
            self.decoder.truncate(ROW, 0)
            for start in range(0, len(token_ids), self.chunk):
                hidden = self._forward(token_ids[start : start + self.chunk], start)
                first = max(len(prompt_ids) - 1 - start, 0)
                for logits in self.decoder.head(hidden[first:]) if first < len(hidden) else ():
                    found.append(_place(logits, output[len(found)], params, shares.random()))
        finally:
            self.decoder.truncate(ROW, 0)
        return found

    def _forward(self, token_ids: Sequence[int], start: int) -> Tensor:
        tokens = torch.tensor(token_ids, dtype=torch.int64, device=self.decoder.device)
        return self.decoder.forward(Tokens(tokens, [ROW], [start], [len(token_ids)]))


def unevenness(places: Sequence[float]) -> float | None:
    """How likely places at least this uneven are under the law; ``None`` of too few to tell.

    Chi-square over ten bins; its tail by the cube root (Wilson and Hilferty, 1931).
    """
    expected = len(places) / NUM_BINS
    if expected < 10:
        return None
    counts = [0] * NUM_BINS
    for place in places:
        counts[min(int(place * NUM_BINS), NUM_BINS - 1)] += 1
    statistic = sum((count - expected) ** 2 / expected for count in counts)
    freedom = NUM_BINS - 1
    spread = 2 / (9 * freedom)
    normal = ((statistic / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)
    return math.erfc(normal / math.sqrt(2)) / 2


def check_law_controls(params: SamplingParams) -> None:
    """Refuse what the check does not follow.

    Raises:
        UserError: a control of ``LAW_CONTROLS`` is set.
    """
    for name in LAW_CONTROLS:
        if getattr(params, name) != type(params).model_fields[name].default:
            raise UserError(
                f"--check-law: knows temperature, top_k, top_p and min_p, not sampling.{name} "
                f"({getattr(params, name)!r}); leave one of the two out"
            )


def token_law(logits: Tensor, params: SamplingParams) -> Tensor:
    """The law of one token, [V] float64, from ``logits`` [V]; the temperature is above 0."""
    probs = torch.softmax(logits.double() / params.temperature, dim=0)
    probs[probs < params.min_p * probs.max()] = 0
    if 0 < params.top_k < len(probs):
        probs[logits < logits.topk(params.top_k).values[-1]] = 0
    if params.top_p < 1:
        ordered, token_ids = probs.sort(descending=True, stable=True)
        before = ordered.cumsum(0) - ordered
        probs[token_ids[before >= params.top_p * probs.sum()]] = 0
    return probs / probs.sum()


def _place(logits: Tensor, token: int, params: SamplingParams, share: float) -> float:
    law = token_law(logits, params)
    own = law[token]
    return float(law[law > own].sum() + share * law[law == own].sum())
