"""Requests that are aborted in any phase: their row and state come back, the others do not notice."""

from collections.abc import Callable, Sequence

import pytest
import torch
from lifecycle import GREEDY, PROMPTS, assert_nothing_left, engine_with, finish
from toys import (
    ScriptedProposer,
    oracle_of,
    run_tokens,
)

from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers import DraftContext
from foredraft.proposers.base import Outcome
from foredraft.proposers.ngram import NgramProposer
from foredraft.verifier import Draft


@pytest.fixture(scope="module")
def plain() -> list[list[int]]:
    return run_tokens(engine_with(None, num_rows=1), PROMPTS, GREEDY)


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


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_generate_that_is_interrupted_leaves_nothing_behind(
    plain: list[list[int]], error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed target pass leaves rows longer than what is committed: such requests must not go on."""
    engine = engine_with(NgramProposer(1, 3), num_rows=2)
    forward, calls = engine.decoder.forward, []

    def fail_once(*args: object) -> torch.Tensor:
        hidden = forward(*args)
        calls.append(hidden)
        if len(calls) == 4:
            raise error
        return hidden

    monkeypatch.setattr(engine.decoder, "forward", fail_once)
    with pytest.raises(error):
        engine.generate(PROMPTS, GREEDY)
    assert run_tokens(engine, PROMPTS, GREEDY) == plain
    assert_nothing_left(engine)
