"""Serve one block of requests with a fixed number in flight, and measure it."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from foredraft.integration.compare.offline.memory import engine_bytes
from foredraft.integration.compare.offline.prompts import CompareRequest
from foredraft.integration.engine import CompletionOutput, Engine, RequestOutput


@dataclass(frozen=True)
class RequestTimes:
    """When the tokens of one request came.

    Attributes:
        first_token_s: seconds from the request in to its first token out, reading the prompt included.
        per_token_s: seconds per further token; ``None`` where there is none.
    """

    first_token_s: float
    per_token_s: float | None


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


def run_block(engine: Engine, requests: Sequence[CompareRequest], batch_size: int) -> BlockRun:
    """Serve all requests, never more than ``batch_size`` at once."""
    before = copy.deepcopy(engine.metrics)
    load = _Load(engine, requests, batch_size)
    started = time.perf_counter()
    load.serve()
    seconds = time.perf_counter() - started
    after = engine.metrics
    completions = load.completions()
    return BlockRun(
        num_draft_tokens=engine.num_draft_tokens,
        seconds=seconds,
        outputs=[completion.token_ids for completion in completions],
        num_passes=sum(completion.speculation.num_steps for completion in completions),
        num_drafted_tokens=after.num_drafted_tokens - before.num_drafted_tokens,
        num_accepted_tokens=after.num_accepted_tokens - before.num_accepted_tokens,
        num_emitted_tokens=after.num_emitted_tokens - before.num_emitted_tokens,
        num_proposer_faults=after.num_proposer_faults - before.num_proposer_faults,
        phase_seconds={
            phase: after.seconds[phase] - before.seconds.get(phase, 0.0) for phase in after.seconds
        },
        accepted_per_position=_gained(after.accepted_per_position, before.accepted_per_position),
        verified_per_position=_gained(after.verified_per_position, before.verified_per_position),
        request_times=load.request_times(),
        decode=load.decode,
        memory_bytes=engine_bytes(engine),
    )


@dataclass
class _InFlight:
    """One request on its way: when it came in, and when its first and newest token came out."""

    added_at: float
    first_at: float | None = None
    newest_at: float = 0.0
    num_tokens: int = 0
    completion: CompletionOutput | None = None


class _Load:
    """A closed loop: a request enters as soon as another one is done, while there are any."""

    def __init__(self, engine: Engine, requests: Sequence[CompareRequest], batch_size: int) -> None:
        self.decode = DecodeTotals()
        self._engine = engine
        self._requests = requests
        self._batch_size = batch_size
        self._each: list[_InFlight] = []
        self._running: dict[str, _InFlight] = {}

    def serve(self) -> None:
        """Step until every request is done."""
        self._fill()
        while self._running:
            reads_prompts = any(one.first_at is None for one in self._running.values())
            seconds_before = dict(self._engine.metrics.seconds)
            outputs = self._engine.step()
            now = time.perf_counter()
            num_tokens = sum(self._note(output, now) for output in outputs)
            if not reads_prompts:
                after = self._engine.metrics.seconds
                spent = {phase: after[phase] - before for phase, before in seconds_before.items()}
                self.decode.add(num_tokens, spent)
            self._fill()

    def completions(self) -> list[CompletionOutput]:
        """In the order of the requests."""
        return [one.completion for one in self._each if one.completion is not None]

    def request_times(self) -> list[RequestTimes]:
        """In the order of the requests; those that ended without a token are left out."""
        times = []
        for one in self._each:
            if one.first_at is not None:
                per_token = None
                if one.num_tokens > 1:
                    per_token = (one.newest_at - one.first_at) / (one.num_tokens - 1)
                times.append(RequestTimes(one.first_at - one.added_at, per_token))
        return times

    def _fill(self) -> None:
        while len(self._each) < len(self._requests) and len(self._running) < self._batch_size:
            number = str(len(self._each))
            request = self._requests[len(self._each)]
            self._engine.add_request(number, request.prompt.token_ids, request.params)
            self._each.append(_InFlight(added_at=time.perf_counter()))
            self._running[number] = self._each[-1]

    def _note(self, output: RequestOutput, now: float) -> int:
        """Take down what one request gained; returns how many tokens."""
        one, completion = self._running[output.request_id], output.outputs[0]
        num_new = len(completion.token_ids) - one.num_tokens
        if num_new:
            one.first_at = now if one.first_at is None else one.first_at
            one.newest_at = now
            one.num_tokens += num_new
        if output.finished:
            one.completion = completion
            del self._running[output.request_id]
        return num_new


def _gained(after: Sequence[int], before: Sequence[int]) -> list[int]:
    return [now - then for now, then in zip_longest(after, before, fillvalue=0)]
