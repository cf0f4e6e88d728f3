"""A remote draft drafts what the same draft in this process does, and changes no output."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import pytest
import torch
from draft_service import LocalChannel, hosted_draft, local_remote
from lifecycle import assert_nothing_left, serve_joining_and_leaving
from toy_drafts import draft_decoder, draft_forward
from toys import TOY_VOCAB, make_engine, random_prompts, run_tokens, toy_model

from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.embedded.forward import ForwardPass, prepare_model
from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers import Proposer
from foredraft.proposers.draft_model import DraftModelProposer

GREEDY = SamplingParams(temperature=0, max_tokens=16)
PROMPTS = random_prompts(8, seed=3, longest=30)
FORMS = pytest.mark.parametrize("reads_states", [False, True], ids=["plain", "reads states"])
AHEAD = pytest.mark.parametrize("ahead", ["off", "on", "auto"])
MODEL = toy_model(2)
TARGET = prepare_model(copy.deepcopy(MODEL))
DRAFTS = {reads_states: draft_forward(MODEL, reads_states=reads_states) for reads_states in (False, True)}
SAMPLED = [
    SamplingParams(temperature=1.0, seed=number, max_tokens=12, top_k=(0, 5)[number % 2], top_p=0.9)
    if number % 3
    else GREEDY
    for number in range(len(PROMPTS))
]


def engine_with(proposer: Proposer | None, num_rows: int = 4, reads_states: bool = False) -> EmbeddedEngine:
    decoder = SlotDecoder(TARGET, num_rows, 256, 512, TOY_VOCAB, keep_states=256 * reads_states)
    return make_engine(decoder, proposer, 3)


def remote_engine(
    draft: ForwardPass, ahead: str, num_rows: int = 4, reads_states: bool = False, **options: object
) -> tuple[EmbeddedEngine, LocalChannel]:
    proposer, channel = local_remote(hosted_draft(draft, num_rows + 1, reads_states), ahead, **options)
    return engine_with(proposer, num_rows, reads_states), channel


def in_process(params: SamplingParams | Sequence[SamplingParams], reads_states: bool) -> EmbeddedEngine:
    draft = DraftModelProposer(draft_decoder(DRAFTS[reads_states]), reads_states=reads_states)
    engine = engine_with(draft, reads_states=reads_states)
    engine.generate(PROMPTS, params)
    return engine


@pytest.fixture(scope="module")
def plain() -> list[list[int]]:
    return run_tokens(engine_with(None), PROMPTS, GREEDY)


@FORMS
@AHEAD
@pytest.mark.parametrize("idle", [True, False], ids=["idle server", "busy server"])
def test_greedy_output_is_that_of_plain_decoding(
    plain: list[list[int]], reads_states: bool, ahead: str, idle: bool
) -> None:
    engine, channel = remote_engine(DRAFTS[reads_states], ahead, reads_states=reads_states, idle=idle)
    assert run_tokens(engine, PROMPTS, GREEDY) == plain
    metrics = engine.metrics
    assert metrics.num_proposer_faults == 0
    assert 0.05 < metrics.num_accepted_tokens / metrics.num_drafted_tokens < 0.95
    assert_nothing_left(engine)
    while channel.server.step():
        pass
    assert channel.server.statistics()["num_requests"] == 0


@FORMS
def test_it_drafts_what_the_same_draft_in_process_does(reads_states: bool) -> None:
    """Counts of every place, greedy and sampled in one batch.

    Without ahead-drafting and, for a draft that reads no states, with it: what is drawn ahead has keys and
    law of what is drawn afterwards.
    """
    here = in_process(SAMPLED, reads_states)
    for ahead in ("off",) if reads_states else ("off", "on"):
        engine, _ = remote_engine(DRAFTS[reads_states], ahead, reads_states=reads_states)
        engine.generate(PROMPTS, SAMPLED)
        assert engine.metrics.verified_per_position == here.metrics.verified_per_position
        assert engine.metrics.accepted_per_position == here.metrics.accepted_per_position


@pytest.mark.parametrize("ahead", ["off", "on"])
def test_sampled_output_is_that_of_the_draft_in_process(ahead: str) -> None:
    draft = DraftModelProposer(draft_decoder(DRAFTS[False]))
    here = run_tokens(engine_with(draft), PROMPTS, SAMPLED)
    engine, channel = remote_engine(DRAFTS[False], ahead)
    assert run_tokens(engine, PROMPTS, SAMPLED) == here
    assert any(answer.laws is not None for answer in channel.answers)


@FORMS
@AHEAD
def test_requests_that_join_and_leave(plain: list[list[int]], reads_states: bool, ahead: str) -> None:
    engine, channel = remote_engine(DRAFTS[reads_states], ahead, 3, reads_states)
    assert serve_joining_and_leaving(engine, PROMPTS, GREEDY) == plain
    assert engine.metrics.num_proposer_faults == 0
    while channel.server.step():
        pass
    assert channel.server.statistics()["num_requests"] == 0


def test_only_what_is_new_is_sent() -> None:
    engine, channel = remote_engine(DRAFTS[False], "off")
    outputs = run_tokens(engine, PROMPTS, GREEDY)
    sent = sum(len(update.token_ids) for request in channel.requests for update in request.updates)
    assert sent <= sum(map(len, PROMPTS)) + sum(map(len, outputs))
    first = [update.sampling is not None for request in channel.requests for update in request.updates]
    assert sum(first) == len(PROMPTS)


def test_a_draft_equal_to_the_target_is_always_ready() -> None:
    """Every assumption comes true, and every answer but a request's first was drawn ahead."""
    engine, channel = remote_engine(prepare_model(copy.deepcopy(MODEL)), "on")
    engine.generate(PROMPTS, GREEDY)
    counts = channel.server.counts
    assert (counts.num_ahead_misses, engine.metrics.num_proposer_faults) == (0, 0)
    assert counts.num_ahead_hits > 20
    assert counts.num_batches < counts.num_answered / 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_states_travel_in_their_own_dtype(dtype: torch.dtype) -> None:
    from foredraft.proposers.state_bytes import from_bytes, to_bytes

    states = torch.randn(3, 8).to(dtype)
    name = str(dtype).removeprefix("torch.")
    raw = to_bytes(states, name)
    assert len(raw) == states.nbytes
    assert torch.equal(from_bytes(raw, 8, name), states)
