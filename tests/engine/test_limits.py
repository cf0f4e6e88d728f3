"""The edges of context, memory and input: what is refused, by name, and what is served to the last token."""

import math
from collections.abc import Callable

import pytest
import torch
from letters import TOKENIZER
from toys import (
    TOY_VOCAB,
    ScriptedProposer,
    TableDecoder,
    make_engine,
    oracle_of,
    random_prompts,
    toy_decoder,
)

from foredraft.integration.config_sections import EngineOptions
from foredraft.integration.embedded.memory import check_free_memory, logits_bytes, plan_memory
from foredraft.integration.errors import UserError
from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers import DraftContext, Proposer
from foredraft.proposers.ngram import NgramProposer
from foredraft.verifier import Draft

MakeProposer = Callable[..., Proposer]
GREEDY = SamplingParams(temperature=0)
CONTEXT = 32


def small_engine(proposer: Proposer | None = None, num_draft_tokens: int = 8) -> object:
    return make_engine(toy_decoder(num_rows=2, capacity=CONTEXT, num_layers=1), proposer, num_draft_tokens)


# ---- the end of the context


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


# ---- what is refused


@pytest.mark.parametrize(
    ("prompt", "complaint"),
    [
        ([], "prompt: is empty"),
        ([1] * CONTEXT, f"prompt: has {CONTEXT} tokens.*max_model_len is {CONTEXT}"),
        ([1] * 10_000, "prompt: has 10000 tokens"),
        ([1, TOY_VOCAB], f"prompt: token id {TOY_VOCAB} is outside the vocabulary of {TOY_VOCAB}"),
        ([-1], "prompt: token id -1 is outside"),
        ([1.5], "prompt: token ids are whole numbers, got 1.5"),
        (["a"], "prompt: token ids are whole numbers, got 'a'"),
        ("text", "prompt: this model has no tokenizer"),
    ],
)
def test_impossible_prompts(prompt: object, complaint: str) -> None:
    engine = small_engine()
    with pytest.raises(UserError, match=complaint):
        engine.add_request("r", prompt, GREEDY)
    assert not engine.has_unfinished_requests()


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"temperature": math.inf}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_p": math.nan}, "top_p"),
        ({"min_p": math.nan}, "min_p"),
        ({"top_k": -2}, "top_k"),
        ({"top_k": 2**63}, "top_k"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"seed": 2**63}, "seed"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"presence_penalty": math.nan}, "presence_penalty"),
        ({"frequency_penalty": 2.1}, "frequency_penalty"),
        ({"logit_bias": {1: math.inf}}, "logit_bias"),
        ({"logit_bias": {1: 1e300}}, "logit_bias"),
        ({"logit_bias": {-1: 1.0}}, "logit_bias"),
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"stop": ""}, "stop"),
        ({"bad_words": ["a", ""]}, "bad_words"),
        ({"logprobs": 21}, "logprobs"),
        ({"prompt_logprobs": -1}, "prompt_logprobs"),
        ({"min_tokens": 17}, "min_tokens"),
        ({"tempreature": 1.0}, "tempreature: unknown field; did you mean temperature?"),
    ],
)
def test_impossible_controls(values: dict[str, object], field: str) -> None:
    with pytest.raises(UserError) as caught:
        SamplingParams(**values)
    assert str(caught.value).startswith(field)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"logit_bias": {8: 1.0}}, "logit_bias: token id 8"),
        ({"allowed_token_ids": [1, 8]}, "allowed_token_ids: token id 8"),
        ({"stop_token_ids": [-1]}, "stop_token_ids: token id -1"),
        ({"stop": "x"}, "stop: this model has no tokenizer"),
        ({"bad_words": "x"}, "bad_words: this model has no tokenizer"),
    ],
)
def test_controls_this_model_cannot_honour(values: dict[str, object], complaint: str) -> None:
    engine = make_engine(TableDecoder(torch.zeros(8, 8)))
    with pytest.raises(UserError, match=complaint):
        engine.add_request("r", [1], SamplingParams(**values))
    assert not engine.has_unfinished_requests()


def test_a_bad_word_the_model_has_no_tokens_for() -> None:
    """Its ids were out of range only in the step that used them, which ended every request."""
    engine = make_engine(TableDecoder(torch.zeros(8, 8)), tokenizer=TOKENIZER)
    with pytest.raises(UserError, match="bad_words: token id"):
        engine.add_request("r", [1], SamplingParams(bad_words=["word"]))


def test_an_end_of_sequence_token_the_model_does_not_have() -> None:
    """min_tokens forbids it, which was out of range; the model cannot generate it anyway."""
    engine = make_engine(TableDecoder(torch.zeros(8, 8)), eos_ids=frozenset({2, 256}))
    (request,) = engine.generate([[1]], SamplingParams(min_tokens=8, max_tokens=8))
    assert 2 not in request.outputs[0].token_ids


def test_one_id_twice() -> None:
    engine = small_engine()
    engine.add_request("r", [1], GREEDY)
    with pytest.raises(UserError, match="request_id: 'r' is in use"):
        engine.add_request("r", [2], GREEDY)
    *_, last = engine.stream(["r"])
    assert last.prompt_token_ids == [1]
    engine.add_request("r", [2], GREEDY)  # free again


def test_generate_serves_all_or_none() -> None:
    """What was queued before the refused prompt used to run on, unseen."""
    engine = small_engine()
    with pytest.raises(UserError):
        engine.generate([[1], []], GREEDY)
    with pytest.raises(ValueError, match="zip"):
        engine.generate([[1], [2]], [GREEDY])
    engine.step()
    assert not engine.has_unfinished_requests()
    assert engine.metrics.num_steps == 0


# ---- no token left


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


# ---- memory


def test_memory_plan_in_exact_numbers() -> None:
    """1000 bytes a position: 1 MB holds 10 rows of 100 positions, not 11."""
    plan = plan_memory(EngineOptions(kv_cache_memory_gb=0.001, max_model_len=100, max_num_seqs=16), 1000, 512)
    assert (plan.num_rows, plan.capacity, plan.num_bytes) == (10, 100, 1_000_000)


def test_no_more_rows_than_asked_for_and_the_length_of_the_model() -> None:
    plan = plan_memory(EngineOptions(kv_cache_memory_gb=1.0, max_num_seqs=3), 1000, 512)
    assert (plan.num_rows, plan.capacity, plan.num_bytes) == (3, 512, 3 * 512 * 1000)


def test_a_budget_below_one_row_is_refused_with_the_way_out() -> None:
    with pytest.raises(UserError, match=r"kv_cache_memory_gb: 0.0005 does not hold.*at most 500"):
        plan_memory(EngineOptions(kv_cache_memory_gb=0.0005), 1000, 512)


def test_a_length_beyond_the_model_is_refused() -> None:
    with pytest.raises(UserError, match="max_model_len: 513 exceeds the 512"):
        plan_memory(EngineOptions(max_model_len=513), 1000, 512)


def test_logits_of_a_full_batch_count() -> None:
    """F123: every row with its draft and one more, in float32, three times over."""
    assert logits_bytes(num_rows=16, num_draft_tokens=5, vocab_size=1000) == 3 * 16 * 6 * 1000 * 4


def test_what_is_not_free_is_refused() -> None:
    check_free_memory(1, torch.device("cpu"))
    with pytest.raises(UserError, match="kv_cache_memory_gb: cache and logits need"):
        check_free_memory(10**18, torch.device("cpu"))


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
