"""Late, lost, dead, restarted: the output is plain decoding's, and the drafts come back."""

from __future__ import annotations

import copy
import itertools
import logging

import pytest
from draft_service import Clock, LocalChannel, attached, card_of, hosted_draft, local_remote
from toy_drafts import draft_forward
from toys import TOY_VOCAB, make_engine, random_prompts, run_tokens, toy_model

from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.embedded.forward import prepare_model
from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers import Proposer
from foredraft.proposers.remote import RemoteProposer
from foredraft.scheduler.draft_server import DraftServer, DraftServerOptions

GREEDY = SamplingParams(temperature=0, max_tokens=16)
PROMPTS = random_prompts(8, seed=3, longest=30)
FORMS = pytest.mark.parametrize("reads_states", [False, True], ids=["plain", "reads states"])
AHEAD = pytest.mark.parametrize("ahead", ["off", "on"])
MODEL = toy_model(2)
TARGET = prepare_model(copy.deepcopy(MODEL))
DRAFTS = {reads_states: draft_forward(MODEL, reads_states=reads_states) for reads_states in (False, True)}


def engine_with(proposer: Proposer | None, reads_states: bool = False, num_rows: int = 4) -> EmbeddedEngine:
    decoder = SlotDecoder(TARGET, num_rows, 256, 512, TOY_VOCAB, keep_states=256 * reads_states)
    return make_engine(decoder, proposer, 3)


def server(reads_states: bool = False, num_rows: int = 5, **options: object) -> DraftServer:
    return DraftServer(
        hosted_draft(DRAFTS[reads_states], num_rows, reads_states),
        DraftServerOptions(gather_ms=0.0, **options),  # type: ignore[arg-type]
    )


def remote(reads_states: bool = False, ahead: str = "on") -> tuple[EmbeddedEngine, LocalChannel, Clock]:
    """An engine whose pauses end with a clock that moves on by itself, 20 ms at each look."""
    clock = Clock()
    ticks = itertools.count()

    def ticking() -> float:
        return clock.now + 0.02 * next(ticks)

    proposer, channel = local_remote(
        hosted_draft(DRAFTS[reads_states], 5, reads_states), ahead, clock=ticking
    )
    return engine_with(proposer, reads_states), channel, clock


def link_counts(engine: EmbeddedEngine) -> object:
    assert isinstance(engine.proposer, RemoteProposer)
    return engine.proposer.counts


@pytest.fixture(scope="module")
def plain() -> list[list[int]]:
    return run_tokens(engine_with(None), PROMPTS, GREEDY)


@FORMS
@AHEAD
@pytest.mark.parametrize("fault", ["late", "lost"])
def test_drafts_that_do_not_come(plain: list[list[int]], reads_states: bool, ahead: str, fault: str) -> None:
    """Every third one; a late answer is never used, however soon after the step it comes."""
    engine, channel, _ = remote(reads_states, ahead)
    honest = channel.draft

    def draft(request):  # type: ignore[no-untyped-def]
        channel.faults.append(fault if len(channel.requests) % 3 == 2 else None)
        return honest(request)

    channel.draft = draft  # type: ignore[method-assign]
    assert run_tokens(engine, PROMPTS, GREEDY) == plain
    counts = link_counts(engine)
    assert getattr(counts, f"num_{fault}") > 3
    assert engine.metrics.num_proposer_faults == 0
    assert engine.metrics.num_accepted_tokens > 10


def test_a_late_answer_is_never_used(plain: list[list[int]]) -> None:
    """The answer to step n comes while step n + 1 asks: only step n + 1's own drafts are verified."""
    engine, channel, _ = remote(ahead="off")
    assert isinstance(engine.proposer, RemoteProposer)
    used = []
    honest = engine.proposer._draft

    def noted(context, answer):  # type: ignore[no-untyped-def]
        used.append((answer.step, channel.requests[-1].step))
        return honest(context, answer)

    engine.proposer._draft = noted  # type: ignore[method-assign]
    channel.faults.extend([None, None, "late", None, "late"])
    assert run_tokens(engine, PROMPTS, GREEDY) == plain
    assert link_counts(engine).num_late == 2  # type: ignore[attr-defined]
    assert all(answered == asked for answered, asked in used)


@FORMS
@AHEAD
def test_a_server_that_is_started_again(reads_states: bool, ahead: str) -> None:
    """Several times under load: drafts are accepted again after each, though the new one knows nothing."""
    engine, channel, _ = remote(reads_states, ahead)
    long = GREEDY.model_copy(update={"max_tokens": 60})
    for number, prompt in enumerate(PROMPTS):
        engine.add_request(str(number), prompt, long)
    finished: dict[str, list[int]] = {}
    accepted = []
    for step in itertools.count():
        if not engine.has_unfinished_requests():
            break
        if step % 12 == 4:
            channel.server = None
        if step % 12 == 7:
            channel.server = server(reads_states)
            accepted.append(engine.metrics.num_accepted_tokens)
        finished |= {one.request_id: one.outputs[0].token_ids for one in engine.step() if one.finished}
    accepted.append(engine.metrics.num_accepted_tokens)
    outputs = [finished[str(number)] for number in range(len(PROMPTS))]
    assert outputs == run_tokens(engine_with(None), PROMPTS, long)
    assert len(accepted) > 4
    assert all(after > before for before, after in itertools.pairwise(accepted[:-1]))
    assert engine.metrics.num_proposer_faults == 0


def test_a_server_that_is_not_there_costs_no_time(plain: list[list[int]]) -> None:
    """While it is dead it is looked for with pauses that grow, not at every step."""
    engine, channel, _ = remote()
    channel.server = None
    hellos = []
    honest = channel.hello
    channel.hello = lambda card: hellos.append(1) or honest(card)  # type: ignore[method-assign, func-returns-value]
    assert run_tokens(engine, PROMPTS, GREEDY) == plain
    assert 1 < len(hellos) < engine.metrics.num_steps / 4
    assert engine.metrics.num_drafted_tokens == 0


@FORMS
def test_a_draft_that_fails_inside_the_server(
    plain: list[list[int]], reads_states: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, channel, _ = remote(reads_states)
    assert channel.server is not None
    proposer = channel.server._hosted.proposer
    honest, calls = proposer.propose, itertools.count()

    def flaky(context):  # type: ignore[no-untyped-def]
        if next(calls) % 7 == 5:
            raise RuntimeError("out of memory")
        return honest(context)

    monkeypatch.setattr(proposer, "propose", flaky)
    assert run_tokens(engine, PROMPTS, GREEDY) == plain
    assert channel.server.counts.num_faults > 2
    assert engine.metrics.num_accepted_tokens > 5


def test_what_goes_wrong_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    engine, channel, _ = remote()
    channel.faults.extend([None, "late"] * 10)
    with caplog.at_level(logging.WARNING):
        engine.generate(PROMPTS, GREEDY)
    assert link_counts(engine).num_late > 3  # type: ignore[attr-defined]
    assert sum("no draft within" in message for message in caplog.messages) == 1


def test_aborts_reach_the_server() -> None:
    engine, channel, _ = remote()
    for number, prompt in enumerate(PROMPTS[:4]):
        engine.add_request(str(number), prompt, GREEDY.model_copy(update={"max_tokens": 200}))
    for _ in range(8):
        engine.step()
    assert channel.server is not None
    assert channel.server.statistics()["num_requests"] == 4
    engine.abort("0")
    engine.abort("2")
    for _ in range(4):
        engine.step()
    assert channel.server.statistics()["num_requests"] == 2
    engine.abort("1")
    engine.abort("3")
    while channel.server.step():
        pass
    assert channel.server.statistics()["num_requests"] == 0


def test_releases_that_were_lost_are_told_again() -> None:
    engine, channel, _ = remote(ahead="off")
    for number, prompt in enumerate(PROMPTS[:3]):
        engine.add_request(str(number), prompt, GREEDY.model_copy(update={"max_tokens": 200}))
    for _ in range(8):
        engine.step()
    engine.abort("0")
    channel.faults.append("lost")
    for _ in range(20):
        engine.step()
    assert channel.server is not None
    assert channel.server.statistics()["num_requests"] == 2


def test_more_requests_than_the_server_has_rows(plain: list[list[int]]) -> None:
    """Who finds no row goes on without drafts, and gets some when a row is free."""
    channel = LocalChannel(server(num_rows=3))
    engine = engine_with(attached(channel, card_of(), clock=itertools.count().__next__), num_rows=8)
    assert run_tokens(engine, PROMPTS, GREEDY) == plain
    turned_away = {handle for answer in channel.answers for handle in answer.turned_away}
    assert len(turned_away) >= 6
    assert engine.metrics.num_accepted_tokens > 5


def test_another_kind_of_draft_is_refused_by_name() -> None:
    channel = LocalChannel(server(reads_states=True))
    proposer = RemoteProposer(channel, card_of())
    refusal = proposer.attach(1.0).refusal
    assert refusal is not None
    assert "hidden states of size 64" in refusal
