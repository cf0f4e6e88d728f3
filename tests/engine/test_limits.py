"""The end of the context, of the rows and of the tokens that are allowed."""

import math
from collections.abc import Callable

import pytest
import torch
from toys import (
    ScriptedProposer,
    TableDecoder,
    make_engine,
    oracle_of,
    random_prompts,
    toy_decoder,
)

from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers import DraftContext, Proposer
from foredraft.proposers.ngram import NgramProposer
from foredraft.verifier import Draft

MakeProposer = Callable[..., Proposer]
GREEDY = SamplingParams(temperature=0)
CONTEXT = 32


def small_engine(proposer: Proposer | None = None, num_draft_tokens: int = 8) -> object:
    return make_engine(toy_decoder(num_rows=2, capacity=CONTEXT, num_layers=1), proposer, num_draft_tokens)


@pytest.mark.parametrize("room", range(1, 11))
def test_up_to_the_last_position(draft_kind: str, room: int, make_proposer: MakeProposer) -> None:
    """F75: drafts end at the room left, next to a request that has plenty."""
    prompts = [random_prompts(1, seed=room)[0][:1] * (CONTEXT - room), [5]]
    params = SamplingParams(temperature=0, max_tokens=1_000)
    plain = small_engine().generate(prompts, params)
    runs = [request.prompt_token_ids + request.outputs[0].token_ids for request in plain]
    engine = small_engine(make_proposer(draft_kind, [run + run[-1:] * 8 for run in runs]))
    got = engine.generate(prompts, params)
    assert [one.outputs[0].token_ids for one in got] == [one.outputs[0].token_ids for one in plain]
    assert [len(one.outputs[0].token_ids) for one in got] == [room, CONTEXT - 1]
    assert {one.outputs[0].finish_reason for one in got} == {"length"}
    assert engine.metrics.num_proposer_faults == 0


class Recorder(ScriptedProposer):
    """Notes how many tokens each request was allowed."""

    def __init__(self) -> None:
        super().__init__(lambda tokens: [tokens[-1]] * 8, num_right=0)
        self.allowed: list[tuple[int, int]] = []

    def propose(self, context: DraftContext) -> Draft:
        lengths = [len(tokens) for tokens in context.token_ids]
        self.allowed += zip(lengths, context.max_draft_tokens, strict=True)
        return super().propose(context)


def test_drafts_are_cut_to_the_room_left() -> None:
    """c tokens committed: min(k, CONTEXT - c - 1) may be drafted, for one more token follows the draft."""
    recorder = Recorder()
    small_engine(recorder).generate([[1] * 20], SamplingParams(temperature=0, max_tokens=1_000))
    assert recorder.allowed == [(count, min(8, CONTEXT - count - 1)) for count in range(21, CONTEXT - 1)]


@pytest.mark.parametrize("max_tokens", [10, 64, 10**12])
def test_any_max_tokens(max_tokens: int) -> None:
    """F79; more than the context holds is cut to what it holds."""
    engine = make_engine(toy_decoder(num_rows=1, capacity=200, num_layers=1), NgramProposer(1, 3))
    (request,) = engine.generate([[1, 2, 1, 2]], SamplingParams(temperature=0, max_tokens=max_tokens))
    assert len(request.outputs[0].token_ids) == min(max_tokens, 196)
    assert request.outputs[0].finish_reason == "length"


def test_requests_beyond_the_rows_wait() -> None:
    prompts = random_prompts(9, seed=4, longest=8)
    expected = [small_engine().generate([prompt], GREEDY)[0].outputs[0].token_ids for prompt in prompts]
    engine = small_engine(NgramProposer(1, 3))
    assert [request.outputs[0].token_ids for request in engine.generate(prompts, GREEDY)] == expected


def test_rows_balance_after_every_step() -> None:
    """F125: free + used = total, always."""
    engine = small_engine(NgramProposer(1, 3))
    for number, prompt in enumerate(random_prompts(7, longest=10)):
        engine.add_request(str(number), prompt, SamplingParams(temperature=0, max_tokens=1 + 3 * number))
    while engine.has_unfinished_requests():
        used = [sequence.row for sequence in engine._running]
        assert sorted([*used, *engine._free_rows]) == [0, 1]
        engine.step()
    assert sorted(engine._free_rows) == [0, 1]


@pytest.mark.parametrize("kind", ["none", "oracle", "wrong"])
@pytest.mark.parametrize("temperature", [0, 1])
def test_a_request_whose_tokens_are_all_forbidden_ends_alone(temperature: float, kind: str) -> None:
    """After [1, 2, 3] the only allowed token is a stop token, before min_tokens: an error of that request."""
    table = torch.full((8, 8), -math.inf)
    table[range(7), range(1, 8)] = 0.0  # token t is followed by t + 1
    table[7, 1] = 0.0
    proposer = ScriptedProposer(oracle_of([[1, 2, 3, 4, 5, 6]]), 8, num_right=8 if kind == "oracle" else 0)
    engine = make_engine(TableDecoder(table), None if kind == "none" else proposer, 4)
    blocked = SamplingParams(temperature=temperature, min_tokens=9, stop_token_ids=[4], logprobs=1)
    other = SamplingParams(temperature=temperature)
    first, second = engine.generate([[1], [1]], [blocked, other])
    output = first.outputs[0]
    assert (output.token_ids, output.finish_reason) == ([2, 3], "error")
    assert "no token is possible here" in str(output.error)
    assert len(output.logprobs or []) == 2
    assert first.finished
    assert (len(second.outputs[0].token_ids), second.outputs[0].finish_reason) == (16, "length")
    assert second.outputs[0].error is None
    assert engine.metrics.num_emitted_tokens == 18


def test_logits_that_are_not_numbers_end_the_request() -> None:
    table = torch.zeros(8, 8)
    table[3] = math.nan
    params = SamplingParams(allowed_token_ids=[3])
    (request,) = make_engine(TableDecoder(table)).generate([[1]], params)
    assert (request.outputs[0].token_ids, request.outputs[0].finish_reason) == ([3], "error")
