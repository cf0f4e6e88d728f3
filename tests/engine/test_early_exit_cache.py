"""What drafting writes into the target's rows, and what of it stays: nothing at committed positions."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from itertools import count

import pytest
import torch
from torch import Tensor
from toy_exits import (
    NUM_LAYERS,
    ReferenceHead,
    exit_engine,
    exit_model,
    exit_target,
    reads_states,
    trained_exit,
    trained_head,
)
from toys import make_engine, random_prompts

from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.embedded.exit_backlog import ROWS_AT_ONCE
from foredraft.integration.embedded.exit_decoder import ExitDecoder
from foredraft.integration.embedded.exit_head import ExitHead, OwnHead
from foredraft.integration.embedded.forward import prepare_model
from foredraft.integration.models.draft_file import DraftFile
from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers import DraftContext
from foredraft.proposers.early_exit import MOST_UNREAD, EarlyExitProposer
from foredraft.scheduler.speculation import Choice, DraftBatch
from foredraft.verifier import Draft

GREEDY = SamplingParams(temperature=0, max_tokens=14)
DRAWN = SamplingParams(temperature=1.0, seed=3, max_tokens=14)
PROMPTS = random_prompts(5, seed=3, longest=30)
MODEL = exit_model()
TARGET = prepare_model(copy.deepcopy(MODEL))
FILES: dict[str, DraftFile] = {
    "one block": trained_exit(MODEL, 1),
    "two blocks": trained_exit(MODEL, 1, num_blocks=2),
    "one block, reads states": trained_exit(MODEL, 2, reads_states=True),
    "two blocks, reads states": trained_exit(MODEL, 2, num_blocks=2, reads_states=True),
}
HEADS: dict[str, ExitHead] = {"own": OwnHead(TARGET, 2)} | {
    name: trained_head(file, TARGET) for name, file in FILES.items()
}
EVERY_HEAD = pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
TRAINED = pytest.mark.parametrize("name", FILES)


def target_of(engine: EmbeddedEngine) -> SlotDecoder:
    assert isinstance(engine.decoder, SlotDecoder)
    return engine.decoder


def committed_rows(engine: EmbeddedEngine) -> dict[int, list[int]]:
    """Cache row -> committed tokens whose keys and values are there, of each running request."""
    decoder = target_of(engine)
    return {
        one.row: one.token_ids[: decoder.valid_len(one.row)] for one in engine._running if one.row is not None
    }


def keys_and_values(engine: EmbeddedEngine) -> dict[int, Tensor]:
    """Cache row -> what its committed positions hold in every layer, the head's behind the target's."""
    cache = target_of(engine).cache
    both = torch.stack([cache.keys, cache.values])
    return {row: both[:, :, row, :, : len(tokens)] for row, tokens in committed_rows(engine).items()}


def num_read(engine: EmbeddedEngine) -> list[int]:
    """By cache row: of how many positions a trained head has written keys and values."""
    backlog = target_of(engine).exit_backlog
    assert backlog is not None
    return backlog._num_read


def submit(engine: EmbeddedEngine, prompts: Sequence[Sequence[int]], params: SamplingParams) -> None:
    for number, prompt in enumerate(prompts):
        engine.add_request(str(number), prompt, params)


def scratch_engine(head: ExitHead, num_rows: int, **options: object) -> EmbeddedEngine:
    """Drafts the same, on a copy of the target's cache made for every draft."""
    target, scratch = exit_target(TARGET, head, num_rows), exit_target(TARGET, head, num_rows)

    class OnScratch(EarlyExitProposer):
        def propose(self, context: DraftContext) -> Draft:
            scratch.cache.keys.copy_(target.cache.keys)
            scratch.cache.values.copy_(target.cache.values)
            scratch.cache.lengths[:] = target.cache.lengths
            if scratch.exit_backlog is not None and target.exit_backlog is not None:
                scratch.exit_backlog._num_read[:] = target.exit_backlog._num_read
                scratch.exit_backlog._at_exit = target.exit_backlog._at_exit
                scratch.exit_backlog._states = target.exit_backlog._states
            return super().propose(context)

    proposer = OnScratch(ExitDecoder(scratch, head), reads_states=reads_states(head))
    return make_engine(target, proposer, 3, **options)


@EVERY_HEAD
@pytest.mark.parametrize("params", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_committed_positions_are_bit_equal_to_drafting_on_a_copy(
    head: ExitHead, params: SamplingParams
) -> None:
    """After every step, with more requests than rows and prompts in chunks (F91): in the target's layers. The
    head's own are written when it gets to them, see below."""
    in_place = exit_engine(TARGET, head, num_rows=3, prefill_chunk=9)
    elsewhere = scratch_engine(head, num_rows=3, prefill_chunk=9)
    for engine in (in_place, elsewhere):
        submit(engine, PROMPTS, params)
    num_steps = 0
    while in_place.has_unfinished_requests():
        in_place.step(), elsewhere.step()
        assert committed_rows(in_place) == committed_rows(elsewhere)
        ours, theirs = keys_and_values(in_place), keys_and_values(elsewhere)
        assert all(torch.equal(ours[row][:, :NUM_LAYERS], theirs[row][:, :NUM_LAYERS]) for row in ours)
        num_steps += 1
    assert num_steps > 10
    assert 0 < in_place.metrics.num_accepted_tokens < in_place.metrics.num_drafted_tokens
    assert in_place.metrics.num_accepted_tokens == elsewhere.metrics.num_accepted_tokens


@EVERY_HEAD
def test_drafting_touches_the_first_layers_behind_the_committed_tokens_alone(head: ExitHead) -> None:
    """Layers [E, L) not at all, of the others nothing before the newest token, but what the head had yet to
    read; states and lengths neither."""
    num_drafts = 0

    class Watched(EarlyExitProposer):
        def propose(self, context: DraftContext) -> Draft:
            nonlocal num_drafts
            before = snapshot(target_of(engine))
            unread = list(num_read(engine)) if target_of(engine).exit_backlog else []
            draft = super().propose(context)
            after = snapshot(target_of(engine))
            assert_only_drafted_places_changed(before, after, context, head.exit_layer, unread)
            num_drafts += bool(draft.lengths.any())
            return draft

    engine = exit_engine(TARGET, head, num_rows=3, proposer=Watched, prefill_chunk=9)
    engine.generate(PROMPTS, GREEDY)
    assert engine.metrics.num_proposer_faults == 0
    assert num_drafts > 10


def snapshot(decoder: SlotDecoder) -> tuple[Tensor, list[int], Tensor]:
    states = torch.zeros(0) if decoder._states is None else decoder._states.states.clone()
    return torch.stack([decoder.cache.keys, decoder.cache.values]), list(decoder.cache.lengths), states


def assert_only_drafted_places_changed(
    before: tuple[Tensor, list[int], Tensor],
    after: tuple[Tensor, list[int], Tensor],
    context: DraftContext,
    exit_layer: int,
    unread: Sequence[int],
) -> None:
    assert before[1] == after[1]
    assert torch.equal(before[2], after[2])
    changed = (before[0] != after[0]).any(-1).any(0)  # layer, row, head, position
    assert not changed[exit_layer:NUM_LAYERS].any()
    for row, token_ids, most in zip(
        context.cache_rows, context.token_ids, context.max_draft_tokens, strict=True
    ):
        newest = len(token_ids) - 1
        assert positions(changed[:NUM_LAYERS, row]) <= set(range(newest, newest + most))
        first = min(unread[row], newest) if unread and most else newest
        assert positions(changed[NUM_LAYERS:, row]) <= set(range(first, newest + most))
    others = [row for row in range(changed.shape[1]) if row not in context.cache_rows]
    assert not changed[:, others].any()


def positions(changed: Tensor) -> set[int]:
    """Of [layers, heads, positions]."""
    return set(changed.any(0).any(0).nonzero().flatten().tolist())


# ---- the trained head's own keys and values


def expected_of_head(name: str, committed: list[int]) -> Tensor:
    """[2, blocks, kv heads, T, D] of the committed tokens, from transformers' states."""
    reference = ReferenceHead(MODEL, FILES[name])
    given = reference.given([*committed, 0])[:-1]
    cache = reference.layers(inputs_embeds=given[None], use_cache=True).past_key_values
    keys, values = ([getattr(layer, name)[0] for layer in cache.layers] for name in ("keys", "values"))
    return torch.stack([torch.stack(keys), torch.stack(values)])


def assert_what_the_head_read_is_right(engine: EmbeddedEngine, name: str) -> None:
    """Of every committed position that it has read, whatever was rejected there before."""
    for row, found in keys_and_values(engine).items():
        tokens = committed_rows(engine)[row][: num_read(engine)[row]]
        if tokens:
            expected = expected_of_head(name, tokens)
            ours = found[:, NUM_LAYERS:, :, : len(tokens)]
            torch.testing.assert_close(ours, expected, rtol=1e-3, atol=1e-3)


def given_by(engine: EmbeddedEngine, length_of: Callable[[int, int], int]) -> None:
    """Each step, the request at each place gets ``length_of(step, place)``, as far as it may."""
    steps, honest = count(), engine.controller.choose

    def choose(batch: DraftBatch) -> Choice:
        step = next(steps)
        most = honest(batch).lengths
        return Choice([min(one, length_of(step, place)) for place, one in enumerate(most)])

    engine.controller.choose = choose


@TRAINED
def test_what_the_head_has_read_is_right_after_every_step(name: str) -> None:
    """Prompts in chunks, rejections, full acceptances, and steps in which nobody or one of two drafts."""
    engine = exit_engine(TARGET, HEADS[name], num_rows=2, prefill_chunk=9)
    submit(engine, PROMPTS[:4], GREEDY)
    given_by(engine, lambda step, place: 0 if step % 3 == 1 or (place and step % 4 == 2) else 3)
    lengths = set()
    while engine.has_unfinished_requests():
        engine.step()
        assert_what_the_head_read_is_right(engine, name)
        lengths |= {len(tokens) for tokens in committed_rows(engine).values()}
    metrics = engine.metrics
    assert metrics.num_proposer_faults == 0
    assert len(lengths) > 10
    assert 0 < metrics.num_accepted_tokens < metrics.num_drafted_tokens


@TRAINED
@pytest.mark.parametrize("drafts_after", [30, MOST_UNREAD - 1, MOST_UNREAD, MOST_UNREAD + 1, 100])
def test_the_head_waits_while_nothing_drafts_and_reads_all_before_a_draft(
    name: str, drafts_after: int
) -> None:
    """For as many steps as are kept of a row, and for more."""
    engine = exit_engine(TARGET, HEADS[name], num_rows=2)
    submit(engine, PROMPTS[:2], SamplingParams(temperature=0, max_tokens=drafts_after + 10))
    given_by(engine, lambda step, place: 3 if step >= drafts_after else 0)
    most_waiting = 0
    while not engine.metrics.num_drafted_tokens:
        lengths = {row: len(tokens) for row, tokens in committed_rows(engine).items()}
        waiting = max((length - num_read(engine)[row] for row, length in lengths.items()), default=0)
        most_waiting = max(waiting, most_waiting)
        engine.step()
        assert_what_the_head_read_is_right(engine, name)
    assert all(num_read(engine)[row] >= length for row, length in lengths.items())
    assert min(drafts_after, MOST_UNREAD) - 2 <= most_waiting < MOST_UNREAD
    assert engine.metrics.num_proposer_faults == 0


def test_many_rows_are_read_in_several_calls() -> None:
    """More than are read at once; every other one drafts, so that the others wait on."""
    name, num_rows = "two blocks, reads states", 2 * ROWS_AT_ONCE + 1
    engine = exit_engine(TARGET, HEADS[name], num_rows=num_rows)
    submit(engine, random_prompts(num_rows, seed=8, longest=20), SamplingParams(temperature=0, max_tokens=24))
    given_by(engine, lambda step, place: 3 if step >= 9 and (step == 9 or place % 2) else 0)
    while engine.has_unfinished_requests():
        drafted = engine.metrics.num_drafted_tokens
        engine.step()
        assert_what_the_head_read_is_right(engine, name)
        if drafted == 0 < engine.metrics.num_drafted_tokens:
            assert all(num_read(engine)[row] > 9 for row in range(num_rows))
    assert engine.metrics.num_proposer_faults == 0


def test_waiting_changes_no_draft() -> None:
    """Drafts after 11 steps without are those of a head that read every pass at once."""
    drafts: list[list[tuple[int, ...]]] = []
    for waits in (True, False):
        engine = exit_engine(TARGET, HEADS["two blocks, reads states"], num_rows=2)
        backlog = target_of(engine).exit_backlog
        assert backlog is not None
        if not waits:
            backlog._fits = lambda tokens: False
        submit(engine, PROMPTS[:2], SamplingParams(temperature=0, max_tokens=60))
        given_by(engine, lambda step, place: 3 if step % 12 == 11 else 0)
        drafts.append(noted_drafts(engine))
        while engine.has_unfinished_requests():
            engine.step()
    assert drafts[0] == drafts[1]
    assert len(drafts[0]) >= 4


def noted_drafts(engine: EmbeddedEngine) -> list[tuple[int, ...]]:
    """The drafts of each step that has any, filled in as they come."""
    drafts: list[tuple[int, ...]] = []
    assert engine.proposer is not None
    honest = engine.proposer.propose

    def propose(context: DraftContext) -> Draft:
        draft = honest(context)
        drafts.append(tuple(draft.token_ids.flatten().tolist()))
        return draft

    engine.proposer.propose = propose
    return drafts


@TRAINED
def test_a_long_prompt_in_one_pass_and_in_chunks_leaves_the_same(name: str) -> None:
    """Longer than the states that are kept of a row."""
    prompt = [(7 * place * place + 3) % 97 for place in range(MOST_UNREAD + 36)]
    engine = exit_engine(TARGET, HEADS[name], num_rows=1)
    chunked = exit_engine(TARGET, HEADS[name], num_rows=1, prefill_chunk=7)
    for one in (engine, chunked):
        submit(one, [prompt], GREEDY)
        while len(committed_rows(one).get(0, [])) < len(prompt):
            one.step()
        assert num_read(one)[0] > len(prompt) - MOST_UNREAD
        assert_what_the_head_read_is_right(one, name)
