"""What drafting writes into the target's rows, and what of it stays: nothing at committed positions."""

from __future__ import annotations

import copy
from collections.abc import Sequence

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

from foredraft.integration.embedded.build import EXIT_STATES
from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.embedded.exit_decoder import ExitDecoder
from foredraft.integration.embedded.exit_head import ExitHead, OwnHead
from foredraft.integration.embedded.forward import prepare_model
from foredraft.integration.models.draft_file import DraftFile
from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers import DraftContext
from foredraft.proposers.early_exit import EarlyExitProposer
from foredraft.scheduler.speculation import Choice
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
    """Cache row -> what its committed positions hold in every layer."""
    cache = target_of(engine).cache
    both = torch.stack([cache.keys, cache.values])
    return {row: both[:, :, row, :, : len(tokens)] for row, tokens in committed_rows(engine).items()}


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
            return super().propose(context)

    proposer = OnScratch(ExitDecoder(scratch, head), reads_states=reads_states(head))
    return make_engine(target, proposer, 3, **options)


@EVERY_HEAD
@pytest.mark.parametrize("params", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_committed_positions_are_bit_equal_to_drafting_on_a_copy(
    head: ExitHead, params: SamplingParams
) -> None:
    """After every step, with more requests than rows and prompts in chunks (F91)."""
    in_place = exit_engine(TARGET, head, num_rows=3, prefill_chunk=9)
    elsewhere = scratch_engine(head, num_rows=3, prefill_chunk=9)
    for engine in (in_place, elsewhere):
        submit(engine, PROMPTS, params)
    num_steps = 0
    while in_place.has_unfinished_requests():
        in_place.step(), elsewhere.step()
        assert committed_rows(in_place) == committed_rows(elsewhere)
        ours, theirs = keys_and_values(in_place), keys_and_values(elsewhere)
        assert all(torch.equal(ours[row], theirs[row]) for row in ours)
        num_steps += 1
    assert num_steps > 10
    assert 0 < in_place.metrics.num_accepted_tokens < in_place.metrics.num_drafted_tokens
    assert in_place.metrics.num_accepted_tokens == elsewhere.metrics.num_accepted_tokens


@EVERY_HEAD
def test_drafting_touches_the_first_layers_behind_the_committed_tokens_alone(head: ExitHead) -> None:
    """Layers [E, L) not at all, of the others nothing before the newest token; states and lengths neither."""
    num_drafts = 0

    class Watched(EarlyExitProposer):
        def propose(self, context: DraftContext) -> Draft:
            nonlocal num_drafts
            before = snapshot(target_of(engine))
            draft = super().propose(context)
            after = snapshot(target_of(engine))
            assert_only_drafted_places_changed(before, after, context, head.exit_layer)
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
) -> None:
    assert before[1] == after[1]
    assert torch.equal(before[2], after[2])
    changed = (before[0] != after[0]).any(-1).any(0)  # layer, row, head, position
    assert not changed[exit_layer:NUM_LAYERS].any()
    by_row = changed.any(2).any(0)
    allowed: dict[int, range] = {}
    for row, token_ids, most in zip(
        context.cache_rows, context.token_ids, context.max_draft_tokens, strict=True
    ):
        allowed[row] = range(len(token_ids) - 1, len(token_ids) - 1 + most)
    for row in range(len(by_row)):
        assert set(by_row[row].nonzero().flatten().tolist()) <= set(allowed.get(row, ()))


# ---- the trained head's own keys and values


def expected_of_head(name: str, committed: list[int]) -> Tensor:
    """[2, blocks, kv heads, T, D] of the committed tokens, from transformers' states."""
    reference = ReferenceHead(MODEL, FILES[name])
    given = reference.given([*committed, 0])[:-1]
    cache = reference.layers(inputs_embeds=given[None], use_cache=True).past_key_values
    keys, values = ([getattr(layer, name)[0] for layer in cache.layers] for name in ("keys", "values"))
    return torch.stack([torch.stack(keys), torch.stack(values)])


def assert_head_is_complete(engine: EmbeddedEngine, name: str) -> None:
    """Of every committed position, whatever was rejected there before."""
    for row, found in keys_and_values(engine).items():
        tokens = committed_rows(engine)[row]
        if tokens:
            expected = expected_of_head(name, tokens)
            torch.testing.assert_close(found[:, NUM_LAYERS:], expected, rtol=1e-3, atol=1e-3)


@TRAINED
def test_the_heads_keys_and_values_are_complete_after_every_step(name: str) -> None:
    """Prompts in chunks, rejections, full acceptances, and steps without drafting."""
    engine = exit_engine(TARGET, HEADS[name], num_rows=2, prefill_chunk=9)
    submit(engine, PROMPTS[:4], GREEDY)
    steps = iter(range(1000))
    honest = engine.controller.choose
    engine.controller.choose = lambda batch: (
        Choice([0] * len(batch.rooms)) if next(steps) % 3 == 1 else honest(batch)
    )
    lengths = set()
    while engine.has_unfinished_requests():
        engine.step()
        assert_head_is_complete(engine, name)
        lengths |= {len(tokens) for tokens in committed_rows(engine).values()}
    metrics = engine.metrics
    assert metrics.num_proposer_faults == 0
    assert len(lengths) > 10
    assert 0 < metrics.num_accepted_tokens < metrics.num_drafted_tokens


@TRAINED
def test_a_long_prompt_in_one_pass_and_in_chunks_leaves_the_same(name: str) -> None:
    """Longer than the states that are kept of a row."""
    prompt = [(7 * place * place + 3) % 97 for place in range(EXIT_STATES + 36)]
    engine = exit_engine(TARGET, HEADS[name], num_rows=1)
    chunked = exit_engine(TARGET, HEADS[name], num_rows=1, prefill_chunk=7)
    for one in (engine, chunked):
        submit(one, [prompt], GREEDY)
        while len(committed_rows(one).get(0, [])) < len(prompt):
            one.step()
        assert_head_is_complete(one, name)
