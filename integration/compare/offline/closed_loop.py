"""Serve one block of requests with a fixed number in flight, and measure it."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass

from foredraft.integration.compare.offline.prompts import CompareRequest
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.engine import CompletionOutput


@dataclass(frozen=True)
class BlockRun:
    """What one engine did with one block.

    Attributes:
        seconds: wall time from the first request in to the last one out, prompts included.
        num_draft_tokens: how many the engine drafts per step at most.
        outputs: tokens of each request, in the order of the block.
        num_passes: target passes that yielded tokens, summed over the requests.
        phase_seconds: the engine's own times, per phase of ``EngineMetrics``.
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

    @property
    def tokens_per_s(self) -> float:
        """Output tokens per second of wall time."""
        return self.num_emitted_tokens / self.seconds


def run_block(engine: EmbeddedEngine, requests: Sequence[CompareRequest], batch_size: int) -> BlockRun:
    """Serve all requests, never more than ``batch_size`` at once."""
    before = copy.deepcopy(engine.metrics)
    started = time.perf_counter()
    completions = _serve(engine, requests, batch_size)
    seconds = time.perf_counter() - started
    after = engine.metrics
    return BlockRun(
        num_draft_tokens=engine.num_draft_tokens,
        seconds=seconds,
        outputs=[completion.token_ids for completion in completions],
        num_passes=sum(completion.speculation.num_steps for completion in completions),
        num_drafted_tokens=after.num_drafted_tokens - before.num_drafted_tokens,
        num_accepted_tokens=after.num_accepted_tokens - before.num_accepted_tokens,
        num_emitted_tokens=after.num_emitted_tokens - before.num_emitted_tokens,
        num_proposer_faults=after.num_proposer_faults - before.num_proposer_faults,
        phase_seconds={phase: after.seconds[phase] - before.seconds[phase] for phase in after.seconds},
    )


def _serve(
    engine: EmbeddedEngine, requests: Sequence[CompareRequest], batch_size: int
) -> list[CompletionOutput]:
    """A request enters as soon as another one is done, while there are any."""
    finished: dict[str, CompletionOutput] = {}
    num_added = 0
    while len(finished) < len(requests):
        while num_added < len(requests) and num_added - len(finished) < batch_size:
            request = requests[num_added]
            engine.add_request(str(num_added), request.prompt.token_ids, request.params)
            num_added += 1
        for output in engine.step():
            if output.finished:
                finished[output.request_id] = output.outputs[0]
    return [finished[str(number)] for number in range(len(requests))]
