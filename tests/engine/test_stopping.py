"""Where a request ends: at the right token of an accepted block, with the right reason, text and usage."""

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from letters import TEXT, TOKENIZER, letter_decoder, text_decoder, token_ids
from tokenizers import Tokenizer, decoders, models
from toys import TableDecoder, make_engine
from transformers import PreTrainedTokenizerFast

from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.engine import CompletionOutput, RequestOutput
from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers import Proposer

MakeProposer = Callable[..., Proposer]
PROMPT = token_ids(TEXT[0])
RUN = token_ids(TEXT * 3)
WIDTH = 8


def greedy(**values: object) -> SamplingParams:
    return SamplingParams(**{"temperature": 0, "max_tokens": 24, **values})


@pytest.fixture
def make(make_proposer: MakeProposer) -> Callable[..., EmbeddedEngine]:
    """An engine that writes ``TEXT``, drafting 8 tokens at a time."""

    def build(kind: str = "oracle", eos: int | None = None) -> EmbeddedEngine:
        proposer = make_proposer(kind, [RUN], 257)
        eos_ids = frozenset() if eos is None else frozenset({eos})
        return make_engine(text_decoder(), proposer, WIDTH, tokenizer=TOKENIZER, eos_ids=eos_ids)

    return build


def streamed(engine: EmbeddedEngine, params: SamplingParams) -> list[RequestOutput]:
    engine.add_request("streamed", PROMPT, params)
    return list(engine.stream(["streamed"]))


def only(engine: EmbeddedEngine, params: SamplingParams) -> CompletionOutput:
    """The completion, after checking that what was streamed only ever grew into it."""
    steps = [output.outputs[0] for output in streamed(engine, params)]
    final = steps[-1]
    for earlier, later in pairwise(steps):
        assert later.text.startswith(earlier.text), "text that was shown is taken back"
        assert later.token_ids[: len(earlier.token_ids)] == earlier.token_ids
    assert all(step.finish_reason is None for step in steps[:-1])
    assert engine.metrics.num_emitted_tokens == len(final.token_ids)  # F153
    assert final.speculation.num_emitted_tokens == len(final.token_ids)
    return final


def decoded(ids: list[int]) -> str:
    text: str = TOKENIZER.decode(ids)
    return text


@pytest.mark.parametrize("offset", range(2 * WIDTH + 3))
def test_end_of_sequence_at_every_offset(
    make: Callable[..., EmbeddedEngine], draft_kind: str, offset: int
) -> None:
    """F37: the token that ends the output sits at each place of an accepted block in turn."""
    expected = RUN[1 : offset + 2]
    output = only(make(draft_kind, eos=expected[-1]), greedy())
    assert output.token_ids == expected
    assert (output.finish_reason, output.stop_reason) == ("stop", None)
    assert output.text == decoded(expected[:-1])


@pytest.mark.parametrize("included", [False, True])
@pytest.mark.parametrize("offset", range(2 * WIDTH + 3))
def test_stop_token_at_every_offset(make: Callable[..., EmbeddedEngine], offset: int, included: bool) -> None:
    expected = RUN[1 : offset + 2]
    params = greedy(stop_token_ids=[expected[-1]], include_stop_str_in_output=included)
    output = only(make(), params)
    assert output.token_ids == expected
    assert (output.finish_reason, output.stop_reason) == ("stop", expected[-1])
    assert output.text == decoded(expected if included else expected[:-1])


@pytest.mark.parametrize("included", [False, True])
@pytest.mark.parametrize("length", [1, 2, 5])
@pytest.mark.parametrize("start", range(1, 12))
def test_stop_text_at_every_place(
    make: Callable[..., EmbeddedEngine], draft_kind: str, start: int, length: int, included: bool
) -> None:
    """Texts that span tokens, end in another block than they began in, and hold cut-up characters."""
    stop = TEXT[start : start + length]
    params = greedy(stop=["never", stop, stop + "?"], include_stop_str_in_output=included)
    output = only(make(draft_kind), params)
    assert output.text == TEXT[1 : start + length if included else start]
    assert output.token_ids == token_ids(TEXT[1 : start + length])
    assert (output.finish_reason, output.stop_reason) == ("stop", stop)


def test_the_earliest_of_several_stops_counts(make: Callable[..., EmbeddedEngine], draft_kind: str) -> None:
    output = only(make(draft_kind), greedy(stop=["jkl", "fgh", "gh😀i"]))
    assert (output.text, output.stop_reason) == ("bcdé€", "fgh")


def test_of_two_stops_completed_by_one_token_the_one_that_began_first_counts(
    make: Callable[..., EmbeddedEngine],
) -> None:
    output = only(make(), greedy(stop=["gh", "fgh", "h"]))
    assert (output.text, output.stop_reason) == ("bcdé€", "fgh")


def test_what_might_become_a_stop_text_is_shown_once_it_did_not(make: Callable[..., EmbeddedEngine]) -> None:
    output = only(make(), greedy(stop="cdX", max_tokens=3))
    assert (output.text, output.finish_reason) == ("bcd", "length")


@pytest.mark.parametrize("max_tokens", range(1, WIDTH + 3))
def test_never_more_than_max_tokens(
    make: Callable[..., EmbeddedEngine], draft_kind: str, max_tokens: int
) -> None:
    """F39; a character cut by the limit shows as a replacement character."""
    output = only(make(draft_kind), greedy(max_tokens=max_tokens))
    assert output.token_ids == RUN[1 : max_tokens + 1]
    assert (output.finish_reason, output.stop_reason) == ("length", None)
    assert output.text == decoded(output.token_ids)


@pytest.mark.parametrize("max_tokens", [5, 6, 7, 8, 9])
def test_a_stop_before_the_limit_counts_though_the_block_passes_both(
    make: Callable[..., EmbeddedEngine], max_tokens: int
) -> None:
    """F41; at 5 the fifth token completes the stop text and reaches the limit too: the stop wins."""
    output = only(make(), greedy(stop="é", max_tokens=max_tokens))
    assert (output.text, output.finish_reason, output.stop_reason) == ("bcd", "stop", "é")
    assert len(output.token_ids) == 5


def test_requests_that_end_in_the_same_step(make: Callable[..., EmbeddedEngine]) -> None:
    """F43: row 0 reaches its limit in the step in which row 2 accepts its stop token."""
    engine = make()
    each = [greedy(max_tokens=4), greedy(), greedy(stop_token_ids=[RUN[4]]), greedy(max_tokens=20)]
    outputs = [request.outputs[0] for request in engine.generate([PROMPT] * 4, each)]
    assert [(len(one.token_ids), one.finish_reason) for one in outputs] == [
        (4, "length"),
        (24, "length"),
        (4, "stop"),
        (20, "length"),
    ]


def test_a_repeated_bigram_without_end_of_sequence(make: Callable[..., EmbeddedEngine]) -> None:
    """F45."""
    engine = make("ngram")
    (request,) = engine.generate([token_ids("abab")], greedy(max_tokens=30))
    assert request.outputs[0].token_ids == RUN[2:32]
    assert engine.metrics.num_accepted_tokens > 0


@pytest.mark.parametrize("min_tokens", [0, 1, 7, 8, 20])
def test_min_tokens_with_every_kind_of_stop(
    make_proposer: MakeProposer, draft_kind: str, min_tokens: int
) -> None:
    """F35: stop tokens are not generated, stop texts not looked for, before the minimum."""
    plain = make_engine(letter_decoder(), tokenizer=TOKENIZER).generate([PROMPT], greedy())[0].outputs[0]
    eos, stop_token, stop = plain.token_ids[6], plain.token_ids[9], plain.text[4:6]
    params = greedy(min_tokens=min_tokens, stop_token_ids=[stop_token], stop=stop)
    outputs = []
    for proposer in (None, make_proposer(draft_kind, [PROMPT + plain.token_ids], 257)):
        engine = make_engine(letter_decoder(), proposer, WIDTH, tokenizer=TOKENIZER, eos_ids=frozenset({eos}))
        outputs.append(only(engine, params))
    on, off = outputs
    assert (on.token_ids, on.text, on.stop_reason) == (off.token_ids, off.text, off.stop_reason)
    assert len(on.token_ids) >= min_tokens
    assert not {eos, stop_token} & set(on.token_ids[:min_tokens])


def test_a_stop_text_before_half_a_character_in_the_same_token() -> None:
    """The text was held back with the half character, so a stop at the length limit was missed and shown."""
    alphabet = {"a": 0, "b": 1, "c": 2, "dâ": 3, "Ĥ": 4, "¬": 5}  # "â", "Ĥ", "¬": the three bytes of "€"
    core = Tokenizer(models.BPE(vocab={**alphabet, "d": 6, "â": 7}, merges=[("d", "â")]))
    core.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core)
    assert tokenizer.decode([2, 3, 4, 5]) == "cd€"
    table = torch.zeros(8, 8)
    table[range(5), range(1, 6)] = 20.0
    for max_tokens in (3, 4, 5):
        engine = make_engine(TableDecoder(table), tokenizer=tokenizer)
        engine.add_request("r", [0], greedy(stop="cd", max_tokens=max_tokens))
        *_, last = engine.stream(["r"])
        output = last.outputs[0]
        assert (output.text, output.finish_reason, output.token_ids) == ("b", "stop", [1, 2, 3])
