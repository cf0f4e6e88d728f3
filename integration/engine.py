"""What every engine offers, with vLLM's names for its outputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from foredraft.integration.errors import UserError
from foredraft.integration.sampling_params import SamplingParams

if TYPE_CHECKING:
    from foredraft.integration.metrics import EngineMetrics
    from foredraft.proposers import Outcome

FinishReason = Literal["stop", "length", "abort", "error"]


@dataclass(frozen=True)
class Logprob:
    """Log-probability of one token under the target's raw distribution (before any sampling control).

    Attributes:
        rank: 1 = the likeliest token.
    """

    logprob: float
    rank: int


PositionLogprobs = dict[int, Logprob]
"""Token id -> its log-probability, at one position: the requested top tokens and the emitted one."""


@dataclass
class SpeculationStats:
    """Counts of one request. Rates are ``None`` while there is nothing to divide by."""

    num_steps: int = 0
    num_drafts: int = 0
    num_drafted_tokens: int = 0
    num_accepted_tokens: int = 0
    num_emitted_tokens: int = 0

    def add(self, outcome: Outcome) -> None:
        """Count one draft, or one step without."""
        self.num_steps += 1
        self.num_drafts += outcome.num_drafted > 0
        self.num_drafted_tokens += outcome.num_drafted
        self.num_accepted_tokens += outcome.num_accepted
        self.num_emitted_tokens += len(outcome.committed_ids)

    @property
    def acceptance_rate(self) -> float | None:
        """accepted / drafted; the bonus token does not count."""
        return self.num_accepted_tokens / self.num_drafted_tokens if self.num_drafted_tokens else None

    @property
    def acceptance_length(self) -> float | None:
        """Tokens per target pass, the recovered or bonus one included: 1.0 means nothing was accepted."""
        return self.num_emitted_tokens / self.num_steps if self.num_steps else None


@dataclass
class CompletionOutput:
    """One completion of a prompt so far.

    ``token_ids`` holds everything generated, a stop token included; ``text`` ends before it.
    ``stop_reason`` is the stop text or stop token that ended it, ``None`` for end of sequence.
    """

    index: int
    text: str
    token_ids: list[int]
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    logprobs: list[PositionLogprobs] | None = None
    speculation: SpeculationStats = field(default_factory=SpeculationStats)
    error: str | None = None


@dataclass
class RequestOutput:
    """A request so far: its prompt and its ``n`` completions.

    ``prompt_logprobs`` has one entry per prompt token; the first is ``None`` (nothing precedes it).
    """

    request_id: str
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool
    prompt_logprobs: list[PositionLogprobs | None] | None = None


class Engine(ABC):
    """Serves requests step by step; each step may advance every running request by several tokens.

    Attributes:
        tokenizer: for text prompts and output; ``None`` = token ids only.
        max_model_len: tokens of prompt and output together.
    """

    tokenizer: Any | None
    max_model_len: int
    metrics: EngineMetrics
    _num_generated = 0  # prompts that ``generate`` has served

    @property
    @abstractmethod
    def num_draft_tokens(self) -> int:
        """Tokens drafted per request and step at most."""

    @abstractmethod
    def add_request(self, request_id: str, prompt: str | Sequence[int], params: SamplingParams) -> None:
        """Queue a request. ``prompt`` is text or token ids.

        Raises:
            UserError: the request can never be served (empty or too long prompt, id in use, bad control).
        """

    @abstractmethod
    def abort(self, request_id: str) -> None:
        """End a request wherever it is; unknown or finished ids are ignored."""

    @abstractmethod
    def step(self) -> list[RequestOutput]:
        """Advance the batch once; returns the requests that changed, cumulative, finished ones included."""

    @abstractmethod
    def has_unfinished_requests(self) -> bool:
        """Whether ``step`` has anything left to do."""

    def stream(self, request_ids: Sequence[str]) -> Iterator[RequestOutput]:
        """Step until these requests are done, yielding their outputs as they grow."""
        waiting = set(request_ids)
        while waiting and self.has_unfinished_requests():
            for output in self.step():
                if output.request_id in waiting:
                    if output.finished:
                        waiting.discard(output.request_id)
                    yield output

    def generate(
        self, prompts: Sequence[str | Sequence[int]], params: SamplingParams | Sequence[SamplingParams]
    ) -> list[RequestOutput]:
        """Serve all prompts and return their finished outputs, in order.

        If this fails or is interrupted, none of them stays behind in the engine.

        Raises:
            UserError: one of them can never be served.
        """
        if isinstance(prompts, str):
            raise UserError("prompts: needs a list of prompts, got a single text")
        each = [params] * len(prompts) if isinstance(params, SamplingParams) else list(params)
        if len(each) != len(prompts):
            raise UserError(
                f"params: one for all or one per prompt; got {len(each)} for {len(prompts)} prompts"
            )
        # Never an id twice, and the same ids on an equal engine: without a seed, a request's random stream
        # hangs on its id.
        first = self._num_generated
        self._num_generated += len(prompts)
        ids = [f"generate-{first + index}" for index in range(len(prompts))]
        try:
            for request_id, prompt, one in zip(ids, prompts, each, strict=True):
                self.add_request(request_id, prompt, one)
            finished = {output.request_id: output for output in self.stream(ids) if output.finished}
        except BaseException:
            for request_id in ids:
                self.abort(request_id)
            raise
        return [finished[request_id] for request_id in ids]
