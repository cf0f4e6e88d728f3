"""What a proposer is told over a request's life, rows that change hands, and everything at once."""

from collections.abc import Callable, Sequence

import pytest
import torch
from lifecycle import GREEDY, PROMPTS, assert_nothing_left, engine_with
from toys import (
    ScriptedProposer,
    TableDecoder,
    make_engine,
    run_tokens,
)

from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers import Proposer
from foredraft.proposers.base import Outcome
from foredraft.proposers.ngram import NgramProposer


@pytest.fixture(scope="module")
def plain() -> list[list[int]]:
    return run_tokens(engine_with(None, num_rows=1), PROMPTS, GREEDY)


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


def test_the_former_owner_of_a_row_leaves_nothing(plain: list[list[int]]) -> None:
    """F101: a long request, then short ones on the same row; drafts on both sides."""
    engine = engine_with(NgramProposer(1, 3), num_rows=1)
    run_tokens(engine, [[3, 4] * 50], SamplingParams(temperature=0, max_tokens=60))
    assert run_tokens(engine, PROMPTS, GREEDY) == plain


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
