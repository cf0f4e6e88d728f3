"""Requests that end early, proposers that fail, rows that change hands: nothing leaks, no one notices."""

import logging
from collections.abc import Callable, Sequence

import pytest
import torch
from toys import (
    ScriptedProposer,
    TableDecoder,
    make_engine,
    oracle_of,
    random_prompts,
    run_tokens,
    toy_decoder,
)

from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.engine import RequestOutput
from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers import DraftContext, Proposer
from foredraft.proposers.base import Outcome
from foredraft.proposers.ngram import NgramProposer
from foredraft.verifier import Draft, DraftProbs

GREEDY = SamplingParams(temperature=0, max_tokens=16)
PROMPTS = random_prompts(4, seed=9, longest=12)


@pytest.fixture(scope="module")
def plain() -> list[list[int]]:
    return run_tokens(make_engine(toy_decoder(num_rows=1, num_layers=2)), PROMPTS, GREEDY)


def engine_with(proposer: Proposer | None, num_rows: int = 4, **options: object) -> EmbeddedEngine:
    return make_engine(toy_decoder(num_rows=num_rows, num_layers=2), proposer, **options)


def finish(engine: EmbeddedEngine) -> dict[str, RequestOutput]:
    """Step until idle; the last output of each request."""
    outputs = {}
    while engine.has_unfinished_requests():
        outputs |= {output.request_id: output for output in engine.step()}
    return outputs


def assert_nothing_left(engine: EmbeddedEngine) -> None:
    assert sorted(engine._free_rows) == list(range(engine.decoder.num_rows))
    for left in (engine._running, engine._waiting, engine._owners, engine._requests, engine._changed):
        assert not left
    if isinstance(engine.proposer, ScriptedProposer):
        assert engine.proposer.live == set()
    if isinstance(engine.proposer, NgramProposer):
        assert not engine.proposer._indexes
        assert not len(engine.proposer._outputs)


class Acting(ScriptedProposer):
    """Does something to the engine in the middle of a step."""

    def __init__(self, plain: list[list[int]], phase: str, act: Callable[[], None]) -> None:
        runs = [prompt + output for prompt, output in zip(PROMPTS, plain, strict=True)]
        super().__init__(oracle_of(runs))
        self.phase, self.act, self.calls = phase, act, 0

    def propose(self, context: DraftContext) -> Draft:
        self._maybe("before propose")
        draft = super().propose(context)
        self._maybe("propose")
        return draft

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        super().observe(outcomes)
        self._maybe("observe")

    def _maybe(self, phase: str) -> None:
        if phase == self.phase:
            self.calls += 1
            if self.calls == 2:
                self.act()


# ---- abort


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("num_steps", range(5))
@pytest.mark.parametrize("num_rows", [1, 2, 4])
def test_abort_between_steps(plain: list[list[int]], num_rows: int, num_steps: int, times: int) -> None:
    """F183: while queued (few rows), during prefill (small chunks) or while decoding."""
    runs = [prompt + output for prompt, output in zip(PROMPTS, plain, strict=True)]
    engine = engine_with(ScriptedProposer(oracle_of(runs)), num_rows, prefill_chunk=4)
    for number, prompt in enumerate(PROMPTS):
        engine.add_request(str(number), prompt, GREEDY)
    early = {}
    for _ in range(num_steps):
        early |= {output.request_id: output for output in engine.step()}
    already = "2" in early and early["2"].finished
    for _ in range(times):
        engine.abort("2")
    outputs = early | finish(engine)
    aborted = outputs["2"].outputs[0]
    assert aborted.finish_reason == ("length" if already else "abort")
    assert aborted.token_ids == plain[2][: len(aborted.token_ids)]
    assert [outputs[str(i)].outputs[0].token_ids for i in (0, 1, 3)] == [plain[i] for i in (0, 1, 3)]
    assert_nothing_left(engine)


@pytest.mark.parametrize("phase", ["before propose", "propose", "observe"])
def test_abort_in_the_middle_of_a_step(plain: list[list[int]], phase: str) -> None:
    """F183: the step's result of an aborted request is dropped whole."""
    counts = []

    def act() -> None:
        counts.append(len(engine._requests["2"].sequences[0].output.token_ids))
        engine.abort("2")
        engine.abort("2")

    engine = engine_with(Acting(plain, phase, act))
    for number, prompt in enumerate(PROMPTS):
        engine.add_request(str(number), prompt, GREEDY)
    outputs = finish(engine)
    aborted = outputs["2"].outputs[0]
    assert (aborted.finish_reason, aborted.token_ids) == ("abort", plain[2][: counts[0]])
    assert [outputs[str(i)].outputs[0].token_ids for i in (0, 1, 3)] == [plain[i] for i in (0, 1, 3)]
    assert engine.metrics.num_emitted_tokens == sum(len(one.outputs[0].token_ids) for one in outputs.values())
    assert engine.metrics.num_proposer_faults == 0
    assert_nothing_left(engine)


@pytest.mark.parametrize("phase", ["propose", "observe"])
def test_abort_of_a_prompt_that_wants_logprobs_while_it_is_read(plain: list[list[int]], phase: str) -> None:
    """The step failed on it for everyone: its prompt's logprobs had lost their owner."""
    engine = engine_with(Acting(plain, phase, lambda: engine.abort("long")), prefill_chunk=4)
    engine.add_request("short", PROMPTS[0], GREEDY)
    while not engine.metrics.num_emitted_tokens:
        engine.step()
    wanted = SamplingParams(temperature=0, prompt_logprobs=1)
    engine.add_request("long", [1, 2] * 60, wanted)
    outputs = finish(engine)
    assert outputs["short"].outputs[0].token_ids == plain[0]
    assert outputs["long"].outputs[0].finish_reason == "abort"
    assert_nothing_left(engine)


def test_abort_of_unknown_and_finished_requests() -> None:
    engine = engine_with(None)
    engine.abort("never seen")
    engine.add_request("r", PROMPTS[0], GREEDY)
    finish(engine)
    engine.abort("r")
    assert engine.step() == []
    assert_nothing_left(engine)


def test_abort_ends_all_completions_and_keeps_finished_ones() -> None:
    engine = engine_with(None, num_rows=2)
    engine.add_request("r", [1], SamplingParams(n=4, seed=1, max_tokens=3))
    for _ in range(4):
        engine.step()
    engine.abort("r")
    (output,) = engine.step()
    assert output.finished
    assert [one.finish_reason for one in output.outputs] == ["length", "length", "abort", "abort"]
    assert_nothing_left(engine)


def test_requests_may_come_and_go_inside_a_step(plain: list[list[int]]) -> None:
    """A row given up in propose may be taken by the next request at once."""

    def act() -> None:
        engine.abort("0")
        engine.add_request("late", PROMPTS[1], GREEDY)

    engine = engine_with(Acting(plain, "propose", act), num_rows=1)
    engine.add_request("0", PROMPTS[0], GREEDY)
    outputs = finish(engine)
    assert outputs["late"].outputs[0].token_ids == plain[1]
    assert_nothing_left(engine)


# ---- proposers that fail


class Failing(ScriptedProposer):
    """Raises in one of its methods, every time."""

    def __init__(self, method: str) -> None:
        super().__init__(lambda tokens: [1, 2, 3])
        self.method = method

    def propose(self, context: DraftContext) -> Draft:
        draft = super().propose(context)
        self._fail("propose")
        return draft

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        self._fail("observe")

    def release(self, request_id: str, reason: str) -> None:
        super().release(request_id, reason)
        self._fail("release")

    def _fail(self, method: str) -> None:
        if method == self.method:
            raise RuntimeError(f"{method} is broken")


@pytest.mark.parametrize("method", ["propose", "observe", "release"])
def test_a_proposer_that_raises(
    plain: list[list[int]], method: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The requests are served, every fault is counted, one is logged."""
    engine = engine_with(Failing(method))
    with caplog.at_level(logging.ERROR):
        assert run_tokens(engine, PROMPTS, GREEDY) == plain
    assert engine.metrics.num_proposer_faults > 1
    assert [record.getMessage().split(";")[0] for record in caplog.records] == [
        f"proposer failed in {method}"
    ]
    assert (engine.metrics.num_drafted_tokens == 0) == (method == "propose")
    assert_nothing_left(engine)


def drawn(support: torch.Tensor | None = None, **changes: object) -> Callable[[int], Draft]:
    """A well-formed drawn draft of one token a row, but for ``changes`` of its distributions."""

    def make(num_rows: int) -> Draft:
        width = 97 if support is None else support.shape[-1]
        values = {
            "rows": torch.arange(num_rows),
            "probs": torch.full((num_rows, 1, width), 1 / width),
            **changes,
        }
        return Draft(
            token_ids=torch.ones(num_rows, 1, dtype=torch.int64),
            lengths=torch.ones(num_rows, dtype=torch.int64),
            probs=DraftProbs(**values, support_ids=support),
        )

    return make


BROKEN: dict[str, Callable[[int], object]] = {
    "nothing": lambda rows: None,
    "a list": lambda rows: [[1]] * rows,
    "too few rows": lambda rows: Draft.from_lists([[1]] * (rows - 1)),
    "too many rows": lambda rows: Draft.from_lists([[1]] * (rows + 1)),
    "too long": lambda rows: Draft.from_lists([[1] * 40] * rows),
    "longer than its columns": lambda rows: Draft(torch.ones(rows, 1).long(), torch.full((rows,), 2)),
    "negative length": lambda rows: Draft(torch.ones(rows, 1).long(), torch.full((rows,), -1)),
    "out of vocabulary": lambda rows: Draft.from_lists([[97]] * rows),
    "padding drafted": lambda rows: Draft.from_lists([[-1]] * rows),
    "not padded": lambda rows: Draft(torch.full((rows, 2), 10**9), torch.ones(rows).long()),
    "int32 tokens": lambda rows: Draft(torch.ones(rows, 1, dtype=torch.int32), torch.ones(rows).long()),
    "float tokens": lambda rows: Draft(torch.ones(rows, 1), torch.ones(rows).long()),
    "int32 lengths": lambda rows: Draft(torch.ones(rows, 1).long(), torch.ones(rows, dtype=torch.int32)),
    "distributions of too many positions": drawn(probs=torch.ones(1, 9, 97), rows=torch.tensor([0])),
    "distributions of another vocabulary": drawn(probs=torch.ones(1, 1, 96), rows=torch.tensor([0])),
    "distributions of rows out of range": drawn(probs=torch.ones(1, 1, 97), rows=torch.tensor([99])),
    "distributions of negative rows": drawn(probs=torch.ones(1, 1, 97), rows=torch.tensor([-1])),
    "distributions of one row twice": drawn(probs=torch.ones(2, 1, 97), rows=torch.tensor([0, 0])),
    "distributions in float64": drawn(probs=torch.ones(1, 1, 97).double(), rows=torch.tensor([0])),
    "support out of vocabulary": drawn(torch.tensor([1, 97])),
    "support of another shape": drawn(torch.ones(1, 3, 2).long(), rows=torch.tensor([0])),
}


class Breaking(ScriptedProposer):
    """Returns a draft that keeps no contract."""

    def __init__(self, kind: str) -> None:
        super().__init__(lambda tokens: [])
        self.kind = kind

    def propose(self, context: DraftContext) -> Draft:
        super().propose(context)
        return BROKEN[self.kind](len(context.request_ids))  # type: ignore[return-value]


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_draft(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """Served as without a draft, counted, logged once; in a batch of greedy and sampled requests."""
    params = [SamplingParams(temperature=float(i % 2), seed=i, max_tokens=16) for i in range(len(PROMPTS))]
    engine = engine_with(Breaking(kind))
    with caplog.at_level(logging.ERROR):
        outputs = run_tokens(engine, PROMPTS, params)
    assert outputs == run_tokens(engine_with(None), PROMPTS, params)
    assert engine.metrics.num_proposer_faults > 1
    assert engine.metrics.num_drafted_tokens == 0
    assert len(caplog.records) == 1
    assert_nothing_left(engine)


def test_the_drafts_that_are_broken_on_purpose_are_broken_in_one_place_only() -> None:
    """What ``drawn`` makes without changes is served."""

    class Sound(Breaking):
        def propose(self, context: DraftContext) -> Draft:
            return drawn()(len(context.request_ids))

    engine = engine_with(Sound(""), num_draft_tokens=1)
    engine.generate(PROMPTS, SamplingParams(max_tokens=3))
    assert engine.metrics.num_proposer_faults == 0
    assert engine.metrics.num_drafted_tokens == len(PROMPTS)


# ---- what a proposer is told


def test_outcomes_come_before_the_release() -> None:
    """The last block of a request was once unknown to the proposer: it had been told to forget it before."""

    class Order(ScriptedProposer):
        def __init__(self) -> None:
            super().__init__(lambda tokens: [5])
            self.log: list[tuple[str, str]] = []

        def observe(self, outcomes: Sequence[Outcome]) -> None:
            self.log += [("observe", outcome.request_id) for outcome in outcomes]

        def release(self, request_id: str, reason: str) -> None:
            self.log.append((reason, request_id))

    engine = engine_with(Order())
    engine.generate(PROMPTS[:1], SamplingParams(max_tokens=2))
    assert engine.proposer.log == [("observe", "generate-0#0")] * 2 + [("finished", "generate-0#0")]


def test_the_shared_store_learns_whole_outputs() -> None:
    """The output of a request that ended in its first block was never learnt."""
    engine = engine_with(NgramProposer(1, 3, shared_store_tokens=100), num_draft_tokens=4)
    prompt = [7, 8, 9]
    (first,) = run_tokens(engine, [prompt], GREEDY)
    run_tokens(engine, [[first[-4]]], SamplingParams(temperature=0, max_tokens=3))
    engine.metrics.num_drafted_tokens = 0
    params = SamplingParams(temperature=0, max_tokens=3, allowed_token_ids=[first[-3]])
    run_tokens(engine, [[first[-4]]], params)
    assert engine.metrics.num_drafted_tokens > 0


# ---- rows


def test_the_former_owner_of_a_row_leaves_nothing(plain: list[list[int]]) -> None:
    """F101: a long request, then short ones on the same row; drafts on both sides."""
    engine = engine_with(NgramProposer(1, 3), num_rows=1)
    run_tokens(engine, [[3, 4] * 50], SamplingParams(temperature=0, max_tokens=60))
    assert run_tokens(engine, PROMPTS, GREEDY) == plain


# ---- all at once


def random_params(draw: Callable[[int], int], longest: int) -> SamplingParams:
    """Controls of every kind, in random company; greedy or seeded, so that the output is determined."""
    values: dict[str, object] = {"max_tokens": 1 + draw(longest), "seed": draw(100)}
    options: list[dict[str, object]] = [
        {"temperature": 0},
        {"top_k": 3},
        {"top_p": 0.7},
        {"min_p": 0.1},
        {"presence_penalty": 1.0},
        {"repetition_penalty": 1.5},
        {"logit_bias": {3: 2.0}},
        {"allowed_token_ids": [1, 2, 5]},
        {"stop_token_ids": [4]},
        {"stop_token_ids": [2], "min_tokens": 1},
        {"logprobs": 2},
        {"prompt_logprobs": 1},
        {"n": 3},
    ]
    for option in options:
        if draw(5) == 0:
            values |= option
    return SamplingParams(**values)


def soak_engine(num_rows: int, proposer: Proposer | None, chunk: int) -> EmbeddedEngine:
    table = torch.randn(8, 8, generator=torch.Generator().manual_seed(2)) * 2
    return make_engine(
        TableDecoder(table, num_rows, capacity=48), proposer, eos_ids=frozenset({6}), prefill_chunk=chunk
    )


def test_soak() -> None:
    """500 mixed requests, some aborted, on 5 rows: each finished one equals its solo run, nothing is left."""
    generator = torch.Generator().manual_seed(0)

    def draw(below: int) -> int:
        return int(torch.randint(0, below, (1,), generator=generator))

    proposer = ScriptedProposer(lambda tokens: [(tokens[-1] * 3 + 1) % 8] * 4, 8, lengths=[3, 0, 5, 1])
    engine = soak_engine(5, proposer, 8)
    prompts = {str(number): [draw(8) for _ in range(1 + draw(20))] for number in range(500)}
    params = {request_id: random_params(draw, 24) for request_id in prompts}
    queue, outputs, aborted = list(prompts), {}, set()
    while queue or engine.has_unfinished_requests():
        for _ in range(min(draw(4), len(queue))):
            request_id = queue.pop()
            engine.add_request(request_id, prompts[request_id], params[request_id])
        if draw(6) == 0 and engine._requests:
            victim = list(engine._requests)[draw(len(engine._requests))]
            engine.abort(victim)
            aborted.add(victim)
        used = [sequence.row for sequence in engine._running]
        assert sorted([*used, *engine._free_rows]) == list(range(5))
        outputs |= {output.request_id: output for output in engine.step() if output.finished}
    assert set(outputs) == set(prompts)
    assert 20 < len(aborted) < 480
    assert engine.metrics.num_proposer_faults == 0
    assert_nothing_left(engine)
    solo = soak_engine(1, None, 256)
    for request_id in set(prompts) - aborted:
        (expected,) = solo.generate([prompts[request_id]], params[request_id])
        for one, other in zip(outputs[request_id].outputs, expected.outputs, strict=True):
            assert (one.token_ids, one.finish_reason, one.logprobs) == (
                other.token_ids,
                other.finish_reason,
                other.logprobs,
            )
        assert outputs[request_id].prompt_logprobs == expected.prompt_logprobs
