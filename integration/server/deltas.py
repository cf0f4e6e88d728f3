"""From outputs that repeat everything to what is new in each."""

from __future__ import annotations

from dataclasses import dataclass

from foredraft.integration.engine import CompletionOutput, FinishReason, PositionLogprobs


@dataclass(frozen=True)
class Delta:
    """What a completion gained.

    Attributes:
        first_token: place in the output of the first of ``token_ids``.
    """

    first_token: int
    text: str
    token_ids: list[int]
    logprobs: list[PositionLogprobs] | None
    finish_reason: FinishReason | None
    stop_reason: int | str | None


class DeltaReader:
    """Reads one completion as it grows."""

    def __init__(self) -> None:
        self._num_letters = 0
        self._num_tokens = 0

    def read(self, output: CompletionOutput) -> Delta:
        """What is new since the last call."""
        delta = Delta(
            self._num_tokens,
            output.text[self._num_letters :],
            output.token_ids[self._num_tokens :],
            None if output.logprobs is None else output.logprobs[self._num_tokens :],
            output.finish_reason,
            output.stop_reason,
        )
        self._num_letters = len(output.text)
        self._num_tokens = len(output.token_ids)
        return delta
