"""Impossible requests are refused by name, before they cost anything."""

import math

import pytest
import torch
from letters import TOKENIZER
from toys import (
    TOY_VOCAB,
    TableDecoder,
    make_engine,
    toy_decoder,
)

from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.errors import UserError
from foredraft.integration.sampling_params import SamplingParams

CONTEXT = 32
GREEDY = SamplingParams(temperature=0)


def small_engine() -> EmbeddedEngine:
    return make_engine(toy_decoder(num_rows=2, capacity=CONTEXT, num_layers=1))


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
    with pytest.raises(UserError, match="got 1 for 2 prompts"):
        engine.generate([[1], [2]], [GREEDY])
    with pytest.raises(UserError, match="single text"):
        engine.generate("hello", GREEDY)
    with pytest.raises(UserError, match="list of token ids, got 1"):
        engine.generate([1, 2], GREEDY)  # type: ignore[list-item]
    with pytest.raises(UserError, match="needs SamplingParams"):
        engine.add_request("r", [1], {"temperature": 0})  # type: ignore[arg-type]
    engine.step()
    assert not engine.has_unfinished_requests()
    assert engine.metrics.num_steps == 0
