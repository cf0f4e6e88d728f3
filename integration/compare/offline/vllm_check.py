"""The output check where vLLM serves: its log-probabilities stand in for the logits that nobody gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foredraft.integration.compare.offline.output_check import Difference, compare_outputs
from foredraft.integration.config import Config
from foredraft.integration.engine import Engine, PositionLogprobs
from foredraft.integration.sampling_params import MAX_LOGPROBS, SamplingParams


@dataclass(frozen=True)
class VllmChecker:
    """Compares outputs and asks the baseline's engine about differences.

    Gaps of log-probabilities are gaps of logits. Only the likeliest tokens are known: where one of the two is
    not among them, the gap is at least what is said.

    Args:
        engine: of the baseline; nothing else may be running on it while a check runs.
        is_float32: whether the target runs in float32, where only equality is acceptable.
        num_draft_tokens: K, how far a speculating pass reaches.
        max_len: tokens of prompt and output.
    """

    engine: Engine
    is_float32: bool
    num_draft_tokens: int
    max_len: int

    def promises_equal_tokens(self, config: Config, temperature: float) -> bool:
        """Greedy only: a stock vLLM draws otherwise than our verifier, from the same law."""
        return temperature == 0

    def compare(
        self, prompt_ids: Sequence[int], expected: Sequence[int], actual: Sequence[int]
    ) -> Difference | None:
        """See ``Checker``."""
        return compare_outputs(prompt_ids, expected, actual, self.measure, is_float32=self.is_float32)

    def measure(self, prefix: Sequence[int], expected: int, actual: int) -> tuple[float, float]:
        """Gap of two tokens after ``prefix``, and how much log-probabilities there change with the pass."""
        narrow, wide = self._one_token_pass(prefix), self._wide_pass(prefix, expected)
        floor = min(one.logprob for one in narrow.values())
        known = [narrow[token].logprob if token in narrow else floor for token in (expected, actual)]
        changes = [abs(narrow[token].logprob - wide[token].logprob) for token in narrow.keys() & wide.keys()]
        return abs(known[0] - known[1]), max(changes, default=0.0)

    def _one_token_pass(self, prefix: Sequence[int]) -> PositionLogprobs:
        """After a pass over the last token of ``prefix`` alone, which is made the only one to be written."""
        params = SamplingParams(
            temperature=0,
            allowed_token_ids=[prefix[-1]],
            max_tokens=2,
            ignore_eos=True,
            logprobs=MAX_LOGPROBS,
        )
        logprobs = self.engine.generate([prefix[:-1]], params)[0].outputs[0].logprobs
        assert logprobs is not None, "they were asked for"
        return logprobs[1]

    def _wide_pass(self, prefix: Sequence[int], expected: int) -> PositionLogprobs:
        """After a pass over ``prefix`` and as many tokens as a draft has."""
        further = [expected] * min(self.num_draft_tokens, self.max_len - len(prefix) - 1)
        params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=MAX_LOGPROBS)
        entries = self.engine.generate([[*prefix, *further, expected]], params)[0].prompt_logprobs
        assert entries is not None, "they were asked for"
        entry = entries[len(prefix)]
        assert entry is not None, "only the first token has none"
        return entry
