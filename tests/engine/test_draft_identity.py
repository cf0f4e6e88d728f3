"""Greedy output with a draft model is token-identical to plain decoding, whoever comes and goes (float32)."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import pytest
import torch
from lifecycle import assert_nothing_left, serve_joining_and_leaving
from toy_drafts import draft_decoder, draft_forward
from toys import TOY_VOCAB, make_engine, random_prompts, run_tokens, toy_model

from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.embedded.forward import ForwardPass, prepare_model
from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers import DraftContext
from foredraft.proposers.draft_model import DraftModelProposer
from foredraft.verifier import Draft

GREEDY = SamplingParams(temperature=0, max_tokens=16)
PROMPTS = random_prompts(8, seed=3, longest=30)
FORMS = pytest.mark.parametrize("reads_states", [False, True], ids=["plain", "reads states"])
MODEL = toy_model(2)
TARGET = prepare_model(copy.deepcopy(MODEL))


def target_decoder(num_rows: int, *, keep_states: int = 0) -> SlotDecoder:
    return SlotDecoder(TARGET, num_rows, 256, 512, TOY_VOCAB, keep_states=keep_states)


@pytest.fixture(scope="module")
def plain() -> list[list[int]]:
    return run_tokens(make_engine(target_decoder(1)), PROMPTS, GREEDY)


@pytest.fixture(scope="module")
def forwards() -> dict[tuple[bool, torch.dtype], ForwardPass]:
    return {
        (reads_states, dtype): draft_forward(MODEL, reads_states=reads_states, dtype=dtype)
        for reads_states in (False, True)
        for dtype in (torch.float32, torch.bfloat16)
    }


def draft_engine(
    draft: ForwardPass,
    num_rows: int,
    num_draft_tokens: int = 3,
    min_confidence: float = 0.0,
    **options: object,
) -> EmbeddedEngine:
    reads_states = hasattr(draft, "_input_proj")
    proposer = DraftModelProposer(
        draft_decoder(draft, num_rows), reads_states=reads_states, min_confidence=min_confidence
    )
    target = target_decoder(num_rows, keep_states=256 * reads_states)
    return make_engine(target, proposer, num_draft_tokens, **options)


def assert_drafted(engine: EmbeddedEngine) -> None:
    """The draft is neither always right nor always wrong, so that both ends of a block are tried."""
    metrics = engine.metrics
    assert metrics.num_proposer_faults == 0
    assert 0.05 < metrics.num_accepted_tokens / metrics.num_drafted_tokens < 0.95
    assert_nothing_left(engine)
    assert isinstance(engine.proposer, DraftModelProposer)
    assert engine.proposer._requests == {}


@FORMS
@pytest.mark.parametrize(
    ("num_rows", "width", "dtype"),
    [
        *((num_rows, width, torch.float32) for num_rows in (1, 6) for width in (1, 3, 8)),
        (1, 8, torch.bfloat16),
        (6, 3, torch.bfloat16),
    ],
)
def test_a_draft_model_leaves_greedy_output_alone(
    plain: list[list[int]],
    forwards: dict[tuple[bool, torch.dtype], ForwardPass],
    num_rows: int,
    width: int,
    dtype: torch.dtype,
    reads_states: bool,
) -> None:
    """Also with more requests than rows; the draft's dtype changes speed alone (F1, F3, F5, F83, F99)."""
    engine = draft_engine(forwards[reads_states, dtype], num_rows, width)
    assert run_tokens(engine, PROMPTS, GREEDY) == plain
    assert_drafted(engine)


@FORMS
def test_drafts_do_not_depend_on_the_batch_or_on_chunks(
    forwards: dict[tuple[bool, torch.dtype], ForwardPass], reads_states: bool
) -> None:
    """F95, F97, F101: equal counts of drafted and accepted tokens, request by request."""
    draft = forwards[reads_states, torch.float32]
    counts = []
    # A last chunk of one token would let a request draft a step earlier.
    prompts = [prompt for prompt in random_prompts(14, seed=5) if len(prompt) % 5 != 1]
    assert sum(len(prompt) > 10 for prompt in prompts) > 3
    for num_rows, options in ((1, {}), (8, {}), (3, {"prefill_chunk": 5})):
        engine = draft_engine(draft, num_rows, **options)
        finished = engine.generate(prompts, GREEDY)
        counts.append([one.outputs[0].speculation for one in finished])
        assert_drafted(engine)
    assert counts[1:] == counts[:1] * 2


@FORMS
def test_requests_that_join_and_leave(
    plain: list[list[int]], forwards: dict[tuple[bool, torch.dtype], ForwardPass], reads_states: bool
) -> None:
    """Some are aborted half-way and submitted again under their old id, as after a preemption (F93)."""
    engine = draft_engine(forwards[reads_states, torch.float32], num_rows=3, prefill_chunk=16)
    assert serve_joining_and_leaving(engine, PROMPTS, GREEDY) == plain
    assert_drafted(engine)


def test_different_samplings_in_one_batch_equal_their_solo_runs(
    forwards: dict[tuple[bool, torch.dtype], ForwardPass],
) -> None:
    """F23: seeded, unseeded and greedy; drafts are drawn from each request's own stream and law."""
    params = [
        SamplingParams(temperature=1.0, seed=number, max_tokens=12, top_k=(0, 5)[number % 2])
        if number % 3
        else GREEDY
        for number in range(len(PROMPTS))
    ]
    draft = forwards[False, torch.float32]
    engine = draft_engine(draft, num_rows=8)
    together = run_tokens(engine, PROMPTS, params)
    assert_drafted(engine)
    alone = [
        run_tokens(draft_engine(draft, num_rows=1), [prompt], one)[0]
        for prompt, one in zip(PROMPTS, params, strict=True)
    ]
    assert together == alone


def test_a_draft_equal_to_the_target_is_accepted_whole(plain: list[list[int]]) -> None:
    """F147: 1, not above; the bonus token does not count."""
    engine = draft_engine(prepare_model(copy.deepcopy(MODEL)), num_rows=4)
    assert run_tokens(engine, PROMPTS, GREEDY) == plain
    metrics = engine.metrics
    assert metrics.num_accepted_tokens == metrics.num_drafted_tokens > 0
    assert metrics.num_emitted_tokens == sum(len(one) for one in plain)


@FORMS
def test_drafting_leaves_the_targets_cache_alone(
    forwards: dict[tuple[bool, torch.dtype], ForwardPass], reads_states: bool
) -> None:
    """F91: keys, values, lengths and states, before and after every draft."""
    checked = []

    class Watched(DraftModelProposer):
        def propose(self, context: DraftContext) -> Draft:
            before = snapshot(engine.decoder)
            draft = super().propose(context)
            after = snapshot(engine.decoder)
            checked.append(all(torch.equal(one, other) for one, other in zip(before, after, strict=True)))
            return draft

    draft = forwards[reads_states, torch.float32]
    proposer = Watched(draft_decoder(draft), reads_states=reads_states)
    engine = make_engine(target_decoder(4, keep_states=256 * reads_states), proposer, 3)
    engine.generate(PROMPTS[:5], GREEDY)
    assert checked == [True] * len(checked)
    assert len(checked) > 10


def snapshot(decoder: object) -> Sequence[torch.Tensor]:
    assert isinstance(decoder, SlotDecoder)
    cache = decoder.cache
    states = [] if decoder._states is None else [decoder._states.states.clone()]
    return [cache.keys.clone(), cache.values.clone(), torch.tensor(cache.lengths), *states]


def test_a_fault_of_the_draft_costs_its_drafts_alone(
    plain: list[list[int]],
    forwards: dict[tuple[bool, torch.dtype], ForwardPass],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Out of memory now and then: the same text, and drafts again afterwards."""
    engine = draft_engine(forwards[False, torch.float32], num_rows=4)
    assert isinstance(engine.proposer, DraftModelProposer)
    decoder = engine.proposer.decoder
    honest, calls = decoder.forward, iter(range(10_000))

    def flaky(*args: object, **kwargs: object) -> torch.Tensor:
        hidden = honest(*args, **kwargs)  # type: ignore[arg-type]
        if next(calls) % 10 == 3:
            raise RuntimeError("out of memory")
        return hidden

    monkeypatch.setattr(decoder, "forward", flaky)
    assert run_tokens(engine, PROMPTS, GREEDY) == plain
    assert engine.metrics.num_proposer_faults > 3
    assert engine.metrics.num_accepted_tokens > 20


@FORMS
def test_a_confidence_stop_drafts_less(
    plain: list[list[int]], forwards: dict[tuple[bool, torch.dtype], ForwardPass], reads_states: bool
) -> None:
    draft = forwards[reads_states, torch.float32]
    drafted = []
    for min_confidence in (0.0, 0.15):
        engine = draft_engine(draft, 4, 6, min_confidence)
        assert run_tokens(engine, PROMPTS, GREEDY) == plain
        drafted.append(engine.metrics.num_drafted_tokens)
    assert 0 < drafted[1] < 0.8 * drafted[0]
