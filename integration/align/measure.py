"""Serve prompts with a real engine and count what is accepted."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from foredraft.integration.align.counts import AcceptanceCounts, total
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.sampling_params import SamplingParams
from foredraft.scheduler.speculation.contract import (
    Choice,
    DraftBatch,
    DraftLengthController,
    FixedDraftLength,
    StepReport,
)

NUM_SEEDS = 2**63


@dataclass(frozen=True)
class AlignPrompt:
    """A prompt as the target reads it, and the group it is counted in."""

    category: str
    token_ids: list[int]


@dataclass
class Acceptance:
    """What has been measured so far.

    Attributes:
        categories: in the order in which they came up.
        num_allowed_tokens: how many tokens the proposer could have drafted.
        complete: whether every prompt was served to its end.
    """

    categories: dict[str, AcceptanceCounts] = field(default_factory=dict)
    num_allowed_tokens: int = 0
    complete: bool = False

    @property
    def overall(self) -> AcceptanceCounts:
        """All categories together."""
        return total(self.categories.values())

    @property
    def drafted_share(self) -> float | None:
        """Drafted of the allowed tokens; well below 1 where a proposer often drafts less, or nothing."""
        if not self.num_allowed_tokens:
            return None
        return self.overall.num_drafted_tokens / self.num_allowed_tokens


def measure_acceptance(
    engine: EmbeddedEngine,
    prompts: Sequence[AlignPrompt],
    temperature: float,
    *,
    sampling: SamplingParams,
    batch_size: int = 8,
    seconds: float | None = None,
) -> Acceptance:
    """Serve ``prompts`` in their order and count the drafts of an idle engine.

    Args:
        temperature: goes before that of ``sampling``; request i gets the seed of ``sampling`` plus i.
        batch_size: requests in flight.
        seconds: what is not served by then is left out, the drafts of unfinished requests are counted.
    """
    acceptance = Acceptance()
    for acceptance in watch_acceptance(  # noqa: B007 - the last one is complete
        engine, prompts, temperature, sampling=sampling, batch_size=batch_size, seconds=seconds
    ):
        pass
    return acceptance


def watch_acceptance(
    engine: EmbeddedEngine,
    prompts: Sequence[AlignPrompt],
    temperature: float,
    *,
    sampling: SamplingParams,
    batch_size: int = 8,
    seconds: float | None = None,
) -> Iterator[Acceptance]:
    """The same, yielding the growing result after every step: who is interrupted keeps what there is."""
    deadline = float("inf") if seconds is None else time.monotonic() + seconds
    acceptance = Acceptance()
    recorder = _Recorder(engine.num_draft_tokens, prompts, acceptance)
    requests = [
        (prompt.token_ids, _params(sampling, temperature, number)) for number, prompt in enumerate(prompts)
    ]
    with controlled_by(engine, recorder):
        for num_unfinished in _serve(engine, requests, batch_size):
            acceptance.complete = num_unfinished == 0
            yield acceptance
            if time.monotonic() > deadline:
                break
    engine.step()  # takes leave of what was aborted


@contextmanager
def controlled_by(engine: EmbeddedEngine, controller: DraftLengthController) -> Iterator[None]:
    """Let another controller decide for a while."""
    own, engine.controller = engine.controller, controller
    try:
        yield
    finally:
        engine.controller = own


class _Recorder(FixedDraftLength):
    """Drafts a fixed number of tokens and counts what becomes of them."""

    def __init__(self, num_draft_tokens: int, prompts: Sequence[AlignPrompt], acceptance: Acceptance) -> None:
        super().__init__(num_draft_tokens)
        self._prompts = prompts
        self._acceptance = acceptance
        self._seen: set[int] = set()

    def choose(self, batch: DraftBatch) -> Choice:
        choice = super().choose(batch)
        self._acceptance.num_allowed_tokens += sum(choice.lengths)
        return choice

    def observe(self, report: StepReport) -> None:
        for outcome in report.outcomes:
            number = _number(outcome.request_id)
            category = self._prompts[number].category
            counts = self._acceptance.categories.setdefault(category, AcceptanceCounts())
            counts.num_prompts += number not in self._seen
            self._seen.add(number)
            counts.add(outcome)


def _params(sampling: SamplingParams, temperature: float, number: int) -> SamplingParams:
    seed = ((sampling.seed or 0) + number) % NUM_SEEDS
    return sampling.model_copy(update={"n": 1, "temperature": temperature, "seed": seed})


def _serve(
    engine: EmbeddedEngine, requests: Sequence[tuple[list[int], SamplingParams]], batch_size: int
) -> Iterator[int]:
    """Keep ``batch_size`` requests in flight while there are any; yields how many are unfinished."""
    waiting = deque(enumerate(requests))
    running: set[str] = set()
    try:
        while waiting or running:
            while waiting and len(running) < batch_size:
                number, (token_ids, params) = waiting.popleft()
                running.add(_request_id(number))
                engine.add_request(_request_id(number), token_ids, params)
            running -= {output.request_id for output in engine.step() if output.finished}
            yield len(waiting) + len(running)
    finally:
        for request_id in running:
            engine.abort(request_id)


def _request_id(number: int) -> str:
    return f"align-{number}"


def _number(sequence_id: str) -> int:
    """Of the engine's name for a request's only sequence: "align-7#0" -> 7."""
    return int(sequence_id.removeprefix("align-").partition("#")[0])
