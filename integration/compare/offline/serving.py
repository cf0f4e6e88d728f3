"""Serve one block of requests, with a fixed number in flight or as they arrive, and measure it."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from foredraft.integration.compare.offline.block_run import BlockRun, DecodeTotals, RequestTimes
from foredraft.integration.compare.offline.memory import engine_bytes
from foredraft.integration.compare.offline.prompts import CompareRequest
from foredraft.integration.engine import CompletionOutput, Engine, RequestOutput


def run_block(
    engine: Engine,
    requests: Sequence[CompareRequest],
    batch_size: int,
    arrivals: Sequence[float] | None = None,
) -> BlockRun:
    """Serve all requests, never more than ``batch_size`` at once.

    Args:
        arrivals: seconds from the start at which each request arrives, ascending; who finds no place waits.
            ``None``: a closed loop, a request arrives as soon as there is a place.
    """
    before = copy.deepcopy(engine.metrics)
    load = _Load(engine, requests, batch_size, arrivals)
    started = time.perf_counter()
    load.serve(started)
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
    """One request on its way: when it arrived, and when its first and newest token came out."""

    arrived_at: float
    first_at: float | None = None
    newest_at: float = 0.0
    num_tokens: int = 0
    completion: CompletionOutput | None = None


class _Load:
    """Requests enter in order, while there is a place and the next one has arrived."""

    def __init__(
        self,
        engine: Engine,
        requests: Sequence[CompareRequest],
        batch_size: int,
        arrivals: Sequence[float] | None,
    ) -> None:
        self.decode = DecodeTotals()
        self._engine = engine
        self._requests = requests
        self._batch_size = batch_size
        self._arrivals = arrivals
        self._started = 0.0
        self._each: list[_InFlight] = []
        self._running: dict[str, _InFlight] = {}

    def serve(self, started: float) -> None:
        """Step until every request is done; ``started`` is the moment from which arrivals count."""
        self._started = started
        self._fill()
        while self._running or len(self._each) < len(self._requests):
            if self._running:
                self._step()
            else:
                time.sleep(max(self._next_arrival() - time.perf_counter(), 0))
            self._fill()

    def _step(self) -> None:
        reads_prompts = any(one.first_at is None for one in self._running.values())
        seconds_before = dict(self._engine.metrics.seconds)
        outputs = self._engine.step()
        now = time.perf_counter()
        num_tokens = sum(self._note(output, now) for output in outputs)
        if not reads_prompts:
            after = self._engine.metrics.seconds
            spent = {phase: after[phase] - before for phase, before in seconds_before.items()}
            self.decode.add(num_tokens, spent)

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
                first, total = one.first_at - one.arrived_at, one.newest_at - one.arrived_at
                times.append(RequestTimes(first, per_token, total))
        return times

    def _fill(self) -> None:
        while len(self._each) < len(self._requests) and len(self._running) < self._batch_size:
            arrived_at = self._next_arrival()
            if arrived_at > time.perf_counter():
                return
            number = str(len(self._each))
            request = self._requests[len(self._each)]
            self._engine.add_request(number, request.prompt.token_ids, request.params)
            self._each.append(_InFlight(arrived_at))
            self._running[number] = self._each[-1]

    def _next_arrival(self) -> float:
        if self._arrivals is None:
            return time.perf_counter()
        return self._started + self._arrivals[len(self._each)]

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
