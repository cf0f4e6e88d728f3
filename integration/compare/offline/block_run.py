"""What one engine did with one block of requests."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class RequestTimes:
    """When the tokens of one request came.

    Attributes:
        first_token_s: seconds from the arrival of the request to its first token, waiting for a place and
            reading the prompt included.
        per_token_s: seconds per further token; ``None`` where there is none.
        total_s: seconds from the arrival to the last token.
    """

    first_token_s: float
    per_token_s: float | None
    total_s: float


@dataclass
class DecodeTotals:
    """The steps in which no prompt was read: what a step costs and yields.

    Attributes:
        seconds: per phase of ``EngineMetrics``.
    """

    num_steps: int = 0
    num_tokens: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, num_tokens: int, seconds: dict[str, float]) -> None:
        """Count one step."""
        self.num_steps += 1
        self.num_tokens += num_tokens
        self.seconds = {phase: self.seconds.get(phase, 0.0) + spent for phase, spent in seconds.items()}


@dataclass(frozen=True)
class BlockRun:
    """What one engine did with one block.

    Attributes:
        num_draft_tokens: how many the engine drafts per step at most.
        seconds: wall time from the first request in to the last one out, prompts included.
        outputs: tokens of each request, in the order of the block.
        num_passes: target passes that yielded tokens, summed over the requests.
        phase_seconds: the engine's own times, per phase of ``EngineMetrics``.
        memory_bytes: what the engine holds besides the target's weights; ``None`` if it does not tell.
    """

    num_draft_tokens: int
    seconds: float
    outputs: list[list[int]]
    num_passes: int
    num_drafted_tokens: int
    num_accepted_tokens: int
    num_emitted_tokens: int
    num_proposer_faults: int
    phase_seconds: dict[str, float]
    accepted_per_position: list[int] = field(default_factory=list)
    verified_per_position: list[int] = field(default_factory=list)
    request_times: list[RequestTimes] = field(default_factory=list)
    decode: DecodeTotals = field(default_factory=DecodeTotals)
    memory_bytes: int | None = 0

    @property
    def tokens_per_s(self) -> float:
        """Output tokens per second of wall time."""
        return self.num_emitted_tokens / self.seconds

    @property
    def requests_per_s_of_latency(self) -> float:
        """1 / mean seconds from the arrival of a request to its last token."""
        return len(self.request_times) / sum(times.total_s for times in self.request_times)
