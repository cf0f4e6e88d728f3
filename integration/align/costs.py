"""What steps of an engine cost, by how many tokens they draft."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from foredraft.integration.align.measure import controlled_by
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.sampling_params import SamplingParams
from foredraft.scheduler.speculation.contract import (
    Choice,
    DraftBatch,
    DraftLengthController,
    FixedDraftLength,
    StepReport,
)

MIN_ROUNDS = 3
"""Measured even when time is over: one disturbed round must not decide."""

MAX_ROUNDS = 25
MAX_MISSES = 50
"""Steps in which less was drafted than asked for, before giving up: such a proposer has no cost per token."""

SETTLING_STEPS = 8
"""Steps at most that a batch is given after its prompts, in which a draft model reads them too."""


@dataclass(frozen=True)
class Costs:
    """Medians in seconds, indexed by the tokens drafted for each request, 0 to K.

    Attributes:
        batch_size: requests that decode together.
        context: tokens of a request in the middle of the measurement.
        pass_s: the target's pass over the newest token and those, and the verdict on them.
        draft_s: drafting them; 0 at 0.
        step_s: the whole step.
        step_ratios: the whole step against the one without drafts, median of the ratios within a round.
        num_rounds: how many steps of each kind there were.
    """

    batch_size: int
    context: int
    pass_s: list[float]
    draft_s: list[float]
    step_s: list[float]
    step_ratios: list[float]
    num_rounds: int

    @property
    def num_draft_tokens(self) -> int:
        """K."""
        return len(self.step_s) - 1

    @property
    def draft_step_s(self) -> float:
        """Drafting one token more: the slope between one token and K."""
        if self.num_draft_tokens == 1:
            return self.draft_s[1]
        return max(0.0, (self.draft_s[-1] - self.draft_s[1]) / (self.num_draft_tokens - 1))


def measure_costs(
    engine: EmbeddedEngine,
    prompts: Sequence[Sequence[int]],
    temperature: float,
    *,
    batch_size: int = 8,
    seconds: float = 10.0,
) -> Costs | None:
    """Time the steps of an idle engine that decodes a full batch, drafting 0, 1, ... K tokens in turn.

    Taking turns step by step, a machine that slows down or speeds up does so for all.

    Args:
        prompts: token ids; the batch is made of those nearest to the median length, repeated if need be.
        seconds: no round begins later, except the first ``MIN_ROUNDS``.

    Returns:
        ``None`` where the engine has no proposer, not enough room after the prompts, or drafts that are
        mostly shorter than asked for.
    """
    if engine.proposer is None:
        return None
    deadline = time.monotonic() + seconds
    rotation = _Rotation(engine, batch_size)
    batch = _typical(prompts, batch_size)
    params = SamplingParams(temperature=temperature, seed=0, ignore_eos=True, max_tokens=engine.max_model_len)
    while rotation.wanted(deadline):
        before = rotation.num_rounds
        _run_batch(engine, batch, params, rotation, deadline)
        if rotation.num_rounds == before:
            break
    return rotation.costs()


def _typical(prompts: Sequence[Sequence[int]], batch_size: int) -> list[list[int]]:
    middle = median(map(len, prompts))
    nearest = sorted(prompts, key=lambda prompt: abs(len(prompt) - middle))[:batch_size]
    return [list(nearest[number % len(nearest)]) for number in range(batch_size)]


def _run_batch(
    engine: EmbeddedEngine,
    batch: Sequence[list[int]],
    params: SamplingParams,
    rotation: _Rotation,
    deadline: float,
) -> None:
    """Serve one batch until there is no more room, or enough is measured."""
    ids = [f"costs-{number}" for number in range(len(batch))]
    try:
        for request_id, prompt in zip(ids, batch, strict=True):
            engine.add_request(request_id, prompt, params)
        settling = _Settling(engine.num_draft_tokens, len(batch))
        with controlled_by(engine, settling):
            while not settling.done and engine.has_unfinished_requests():
                engine.step()
        rotation.begin()
        with controlled_by(engine, rotation):
            while not rotation.out_of_room and rotation.wanted(deadline) and engine.has_unfinished_requests():
                engine.step()
    finally:
        for request_id in ids:
            engine.abort(request_id)
    engine.step()  # takes leave of what was aborted


class _Settling(FixedDraftLength):
    """Waits until all requests decode and are drafted for in full, or ``SETTLING_STEPS`` have gone by."""

    def __init__(self, num_draft_tokens: int, batch_size: int) -> None:
        super().__init__(num_draft_tokens)
        self._batch_size = batch_size
        self._started: set[str] = set()
        self._steps_left = SETTLING_STEPS
        self.done = False

    def observe(self, report: StepReport) -> None:
        outcomes = report.outcomes
        all_started = len(self._started) == self._batch_size
        self._started |= {outcome.request_id for outcome in outcomes}
        if all_started:
            self._steps_left -= 1
            drafted = all(outcome.num_drafted == self.max_draft_tokens for outcome in outcomes)
            self.done = drafted or self._steps_left == 0


@dataclass(frozen=True)
class _StepTimes:
    """One step: seconds as in ``Costs``, and the length of its first request."""

    pass_s: float
    draft_s: float
    step_s: float
    context: int


class _Rotation(DraftLengthController):
    """Drafts 0, 1, ... K tokens in turn and notes what each step took. A round is one step of each kind."""

    def __init__(self, engine: EmbeddedEngine, batch_size: int) -> None:
        self.max_draft_tokens = engine.num_draft_tokens
        self.out_of_room = False
        self._batch_size = batch_size
        self._round: list[_StepTimes] = []
        self._rounds: list[list[_StepTimes]] = []
        self._num_misses = 0

    @property
    def num_rounds(self) -> int:
        """Whole rounds so far."""
        return len(self._rounds)

    def begin(self) -> None:
        """Another batch."""
        self._round = []
        self.out_of_room = False

    def wanted(self, deadline: float) -> bool:
        """Whether more rounds are needed, or possible; a round that has begun is finished."""
        if self._num_misses > MAX_MISSES:
            return False
        if self._round or self.num_rounds < MIN_ROUNDS:
            return True
        return self.num_rounds < MAX_ROUNDS and time.monotonic() < deadline

    def choose(self, batch: DraftBatch) -> Choice:
        self.out_of_room = min(batch.rooms) < self.max_draft_tokens
        return Choice(batch.caps(len(self._round)))

    def observe(self, report: StepReport) -> None:
        outcomes = report.outcomes
        if self.out_of_room or len(outcomes) < self._batch_size:
            return
        if any(outcome.num_drafted != len(self._round) for outcome in outcomes):
            self._num_misses += 1  # what such a step took is the cost of nothing we ask about
            return
        draft_s = sum(report.propose_s) if self._round else 0.0
        self._round.append(_StepTimes(report.target_s, draft_s, report.step_s, outcomes[0].block_start))
        if len(self._round) > self.max_draft_tokens:
            self._rounds.append(self._round)
            self._round = []

    def costs(self) -> Costs | None:
        """What was measured; ``None`` without a whole round."""
        if not self._rounds:
            return None
        kinds = list(zip(*self._rounds, strict=True))
        return Costs(
            batch_size=self._batch_size,
            context=int(median(steps[0].context for steps in self._rounds)),
            pass_s=[median(step.pass_s for step in kind) for kind in kinds],
            draft_s=[median(step.draft_s for step in kind) for kind in kinds],
            step_s=[median(step.step_s for step in kind) for kind in kinds],
            step_ratios=[
                median(step.step_s / plain.step_s for step, plain in zip(kind, kinds[0], strict=True))
                for kind in kinds
            ],
            num_rounds=self.num_rounds,
        )
