"""Every sampling control does what it says, and does the same with speculation on (F29, F31, F33, F35)."""

from collections.abc import Callable, Sequence

import pytest
from letters import TEXT_VOCAB, TOKENIZER, letter_decoder, token_ids
from toys import ScriptedProposer, make_engine, oracle_of

from foredraft.integration.engine import CompletionOutput, RequestOutput
from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers import Proposer

MakeProposer = Callable[..., Proposer]
PROMPTS = [token_ids(text) for text in ("a", "some words", "abcabc")]
GREEDY = {"temperature": 0, "max_tokens": 24}
SAMPLED = {"seed": 5, "max_tokens": 24}


def serve(proposer: Proposer | None, params: SamplingParams, eos: frozenset[int]) -> list[RequestOutput]:
    engine = make_engine(letter_decoder(), proposer, 4, tokenizer=TOKENIZER, eos_ids=eos)
    requests = engine.generate(PROMPTS, params)
    assert engine.metrics.num_proposer_faults == 0
    assert proposer is None or engine.metrics.num_drafted_tokens > 0
    return requests


def firsts(requests: Sequence[RequestOutput]) -> list[CompletionOutput]:
    return [request.outputs[0] for request in requests]


# What the controls are aimed at: the plain outputs without them.
BASE = firsts(serve(None, SamplingParams(**GREEDY), frozenset()))
BASE_SAMPLED = firsts(serve(None, SamplingParams(**SAMPLED), frozenset()))
EOS = BASE[0].token_ids[7]
WORD = BASE[0].text[4:6]

Effect = Callable[[list[CompletionOutput]], bool]


def is_greedy(outputs: list[CompletionOutput]) -> bool:
    return [one.token_ids for one in outputs] == [one.token_ids for one in BASE]


def distinct(outputs: list[CompletionOutput]) -> int:
    return sum(len(set(one.token_ids)) for one in outputs)


def repeats_less(outputs: list[CompletionOutput]) -> bool:
    return distinct(outputs) > distinct(BASE)


def repeats_more(outputs: list[CompletionOutput]) -> bool:
    return distinct(outputs) < distinct(BASE)


def holds_in_each(holds: Callable[[CompletionOutput], bool]) -> Effect:
    return lambda outputs: all(holds(one) for one in outputs)


CONTROLS: dict[str, tuple[dict[str, object], Effect]] = {
    "top_k": ({**SAMPLED, "top_k": 1}, is_greedy),
    "top_p": ({**SAMPLED, "top_p": 1e-6}, is_greedy),
    "min_p": ({**SAMPLED, "min_p": 1.0}, is_greedy),
    "temperature": ({**SAMPLED, "temperature": 1e-3}, is_greedy),
    "seed": (
        {**SAMPLED, "seed": 6},
        lambda outputs: [one.text for one in outputs] != [one.text for one in BASE_SAMPLED],
    ),
    "presence_penalty": ({**GREEDY, "presence_penalty": 2.0}, repeats_less),
    "frequency_penalty": ({**GREEDY, "frequency_penalty": 2.0}, repeats_less),
    "negative frequency_penalty": ({**GREEDY, "frequency_penalty": -2.0}, repeats_more),
    "repetition_penalty": ({**GREEDY, "repetition_penalty": 2.0}, repeats_less),
    "logit_bias": (
        {**GREEDY, "logit_bias": {5: 100.0}},
        holds_in_each(lambda one: set(one.token_ids) == {5}),
    ),
    "allowed_token_ids": (
        {**SAMPLED, "allowed_token_ids": token_ids("xyz")},
        holds_in_each(lambda one: set(one.text) == set("xyz")),
    ),
    "bad_words": (
        {**GREEDY, "bad_words": WORD},
        lambda outputs: all(WORD not in one.text for one in outputs),
    ),
    "stop": (
        {**GREEDY, "stop": WORD},
        lambda outputs: outputs[0].text == BASE[0].text[:4] and outputs[0].stop_reason == WORD,
    ),
    "include_stop_str_in_output": (
        {**GREEDY, "stop": WORD, "include_stop_str_in_output": True},
        lambda outputs: outputs[0].text == BASE[0].text[:6],
    ),
    "stop_token_ids": (
        {**GREEDY, "stop_token_ids": [BASE[0].token_ids[3]]},
        lambda outputs: outputs[0].token_ids == BASE[0].token_ids[:4] and outputs[0].text == BASE[0].text[:3],
    ),
    "end of sequence": (GREEDY, lambda outputs: outputs[0].token_ids == BASE[0].token_ids[:8]),
    "ignore_eos": ({**GREEDY, "ignore_eos": True}, is_greedy),
    "min_tokens": (
        {**GREEDY, "min_tokens": 20},
        holds_in_each(lambda one: len(one.token_ids) >= 20 and EOS not in one.token_ids[:20]),
    ),
    "max_tokens": (
        {**SAMPLED, "max_tokens": 9},
        holds_in_each(lambda one: one.finish_reason == "length" and len(one.token_ids) == 9),
    ),
    "logprobs": (
        {**GREEDY, "logprobs": 3},
        holds_in_each(
            lambda one: (
                [next(iter(entry)) for entry in one.logprobs or ()] == one.token_ids
                and all(len(entry) == 3 for entry in one.logprobs or ())
            )
        ),
    ),
    "skip_special_tokens": (
        {**GREEDY, "logit_bias": {256: 100.0}, "skip_special_tokens": False, "max_tokens": 5},
        holds_in_each(lambda one: one.text == "<end>" * 5),
    ),
    "special tokens skipped": (
        {**GREEDY, "logit_bias": {256: 100.0}, "max_tokens": 5},
        holds_in_each(lambda one: one.text == "" and len(one.token_ids) == 5),
    ),
}
# In these the end-of-sequence token is one that the plain output holds at its 8th place.
WITH_EOS = {"end of sequence", "ignore_eos", "min_tokens"}


def eos_of(control: str) -> frozenset[int]:
    return frozenset({EOS}) if control in WITH_EOS else frozenset()


def what_users_see(requests: Sequence[RequestOutput]) -> list[object]:
    return [
        (one.token_ids, one.text, one.finish_reason, one.stop_reason, one.logprobs, request.prompt_logprobs)
        for request in requests
        for one in request.outputs
    ]


@pytest.mark.parametrize("control", CONTROLS)
def test_effect(control: str) -> None:
    values, has_effect = CONTROLS[control]
    assert has_effect(firsts(serve(None, SamplingParams(**values), eos_of(control))))


@pytest.mark.parametrize("control", CONTROLS)
def test_same_with_speculation(control: str, draft_kind: str, make_proposer: MakeProposer) -> None:
    params = SamplingParams(**CONTROLS[control][0])
    plain = serve(None, params, eos_of(control))
    runs = [request.prompt_token_ids + request.outputs[0].token_ids for request in plain]
    # An oracle that knows the whole run would draft nothing past its end, where a late stop shows.
    runs = [run + run[-1:] * 8 for run in runs]
    proposer = make_proposer(draft_kind, runs, TEXT_VOCAB)
    assert what_users_see(serve(proposer, params, eos_of(control))) == what_users_see(plain)


@pytest.mark.parametrize("control", CONTROLS)
def test_same_with_drafts_that_ignore_the_control(control: str) -> None:
    """Drafts as they would be right without the control, again and again after every rejection."""

    def continuation(tokens: Sequence[int]) -> Sequence[int]:
        # letter_decoder looks at the last token alone, so its greedy successors can be walked from any.
        chain = []
        for _ in range(4):
            tokens = [*tokens, int(table[tokens[-1]].argmax())]
            chain.append(tokens[-1])
        return chain

    table = letter_decoder().table
    params = SamplingParams(**CONTROLS[control][0])
    plain = serve(None, params, eos_of(control))
    proposer = ScriptedProposer(continuation, TEXT_VOCAB)
    assert what_users_see(serve(proposer, params, eos_of(control))) == what_users_see(plain)


def test_n_and_prompt_logprobs_with_speculation(draft_kind: str, make_proposer: MakeProposer) -> None:
    params = SamplingParams(n=3, seed=2, prompt_logprobs=2, logprobs=0, max_tokens=12)
    plain = serve(None, params, frozenset())
    runs = [request.prompt_token_ids + one.token_ids for request in plain for one in request.outputs]
    proposer = ScriptedProposer(oracle_of(runs), TEXT_VOCAB)
    if draft_kind != "oracle":
        proposer = make_proposer(draft_kind, runs, TEXT_VOCAB)
    speculated = serve(proposer, params, frozenset())
    assert what_users_see(speculated) == what_users_see(plain)
    assert all(len(request.outputs) == 3 for request in speculated)
    assert [len(request.prompt_logprobs or ()) for request in speculated] == [len(ids) for ids in PROMPTS]


def test_a_bad_word_of_one_token_is_never_drafted_in() -> None:
    """F29: the draft proposes the very word that is banned."""
    banned = chr(ord("a") + 1)
    drafts = ScriptedProposer(lambda tokens: token_ids(banned * 4), TEXT_VOCAB)
    outputs = firsts(serve(drafts, SamplingParams(**GREEDY, bad_words=[banned]), frozenset()))
    assert all(banned not in one.text for one in outputs)


def test_opposite_frequency_penalties_differ() -> None:
    """F29: they once gave the same text, with no warning."""
    high, low = (
        firsts(serve(None, SamplingParams(**GREEDY, frequency_penalty=penalty), frozenset()))
        for penalty in (2.0, -2.0)
    )
    assert [one.text for one in high] != [one.text for one in low]
