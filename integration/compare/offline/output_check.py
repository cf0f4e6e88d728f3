"""Is the output with speculation the output without it, and if not, could rounding have done it?

In float32 only equality is acceptable. In narrower formats a pass over several tokens rounds otherwise than
a pass over one, and where two tokens are about equally likely that can flip the choice: a near-tie.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from foredraft.integration.compare.variants import BASELINE
from foredraft.integration.config import Config, proposer_names
from foredraft.proposers.decoder import Decoder, Tokens

OutputsEqual = Literal["near_tie"] | bool

Measure = Callable[[Sequence[int], int, int], tuple[float, float]]

ROW = 0


@dataclass(frozen=True)
class Difference:
    """Where one output leaves the expected one.

    Attributes:
        position: index of the first differing output token.
        logit_gap: how far apart the target's raw logits of the two tokens are, without speculation;
            ``None`` where one output merely ends earlier.
        rounding: the largest change of any logit there between a one-token and a (K+1)-token pass.
        near_tie: whether rounding explains the difference; never in float32.
    """

    position: int
    logit_gap: float | None
    rounding: float | None
    near_tie: bool


@dataclass(frozen=True)
class Verdict:
    """The answer for a set of prompts, with the prompt (by number) and place that decided it."""

    outputs_equal: OutputsEqual
    prompt_number: int | None = None
    difference: Difference | None = None


SEED_EXACT_PROPOSERS = {BASELINE, "ngram"}
"""Their drafts are point masses: in float32 the seeded output is the same tokens as without speculation."""


class Checker(Protocol):
    """What holds the outputs of one kind of engine against those of the baseline."""

    def promises_equal_tokens(self, config: Config, temperature: float) -> bool:
        """Whether a configuration must give the baseline's tokens, up to rounding."""

    def compare(
        self, prompt_ids: Sequence[int], expected: Sequence[int], actual: Sequence[int]
    ) -> Difference | None:
        """The first difference between two outputs of a prompt; ``None`` if they are equal."""


@dataclass(frozen=True)
class OutputChecker:
    """Compares outputs and asks the target about differences.

    Args:
        decoder: the target; no request may be running on it while a check runs.
        dtype: number format of the target.
        num_draft_tokens: K, how far a speculating pass reaches.
        prefill_chunk: tokens per pass when a prefix is read.
    """

    decoder: Decoder
    dtype: torch.dtype
    num_draft_tokens: int
    prefill_chunk: int

    def promises_equal_tokens(self, config: Config, temperature: float) -> bool:
        """See ``Checker``."""
        return promises_equal_tokens(config, temperature, self.dtype)

    def compare(
        self, prompt_ids: Sequence[int], expected: Sequence[int], actual: Sequence[int]
    ) -> Difference | None:
        """See ``Checker``."""
        is_float32 = self.dtype == torch.float32
        return compare_outputs(prompt_ids, expected, actual, self.measure, is_float32=is_float32)

    def measure(self, prefix: Sequence[int], expected: int, actual: int) -> tuple[float, float]:
        """Logit gap of two tokens after ``prefix``, and the rounding of the logits there."""
        start = len(prefix) - 1
        # At the end of the context fewer tokens fit; one always does, as a token was generated here.
        room = min(self.decoder.capacity, self.decoder.max_len) - len(prefix)
        further = [expected] * min(self.num_draft_tokens, room)
        try:
            self._read(prefix[:start])
            narrow = self._logits(prefix[start:], start)
            self.decoder.truncate(ROW, start)
            wide = self._logits([*prefix[start:], *further], start)
        finally:
            self.decoder.truncate(ROW, 0)
        return abs(narrow[expected] - narrow[actual]).item(), (narrow - wide).abs().max().item()

    def _read(self, token_ids: Sequence[int]) -> None:
        self.decoder.truncate(ROW, 0)
        for start in range(0, len(token_ids), self.prefill_chunk):
            self._forward(token_ids[start : start + self.prefill_chunk], start)

    def _logits(self, token_ids: Sequence[int], start: int) -> Tensor:
        """Logits [V] after the first of ``token_ids``."""
        return self.decoder.head(self._forward(token_ids, start)[:1])[0].float()

    def _forward(self, token_ids: Sequence[int], start: int) -> Tensor:
        tokens = torch.tensor(token_ids, dtype=torch.int64, device=self.decoder.device)
        return self.decoder.forward(Tokens(tokens, [ROW], [start], [len(token_ids)]))


def promises_equal_tokens(config: Config, temperature: float, dtype: torch.dtype) -> bool:
    """The same of the embedded engine, whose verifier draws alike with and without drafts."""
    return temperature == 0 or (
        dtype == torch.float32 and set(proposer_names(config)) <= SEED_EXACT_PROPOSERS
    )


def compare_outputs(
    prompt_ids: Sequence[int],
    expected: Sequence[int],
    actual: Sequence[int],
    measure: Measure,
    *,
    is_float32: bool,
) -> Difference | None:
    """The first difference between two outputs of a prompt; ``None`` if they are equal.

    Args:
        measure: of a prefix and two tokens after it, the gap of their logits and the rounding there.
        is_float32: then rounding excuses nothing.
    """
    position = first_difference(expected, actual)
    if position is None:
        return None
    if position >= min(len(expected), len(actual)):
        return Difference(position, None, None, near_tie=False)
    prefix = [*prompt_ids, *expected[:position]]
    gap, rounding = measure(prefix, expected[position], actual[position])
    return Difference(position, gap, rounding, near_tie=not is_float32 and gap <= 2 * rounding)


def first_difference(expected: Sequence[int], actual: Sequence[int]) -> int | None:
    """Index of the first token that differs or is missing on one side; ``None`` if there is none."""
    for position, (one, other) in enumerate(zip(expected, actual, strict=False)):
        if one != other:
            return position
    return None if len(expected) == len(actual) else min(len(expected), len(actual))


def judge(differences: Sequence[Difference | None]) -> Verdict:
    """One verdict over many prompts: the worst counts, and of equally bad ones the first."""
    found = [(number, one) for number, one in enumerate(differences) if one is not None]
    if not found:
        return Verdict(outputs_equal=True)
    number, worst = min(found, key=lambda pair: pair[1].near_tie)
    return Verdict("near_tie" if worst.near_tie else False, number, worst)
