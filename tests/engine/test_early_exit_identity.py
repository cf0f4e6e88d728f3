"""Greedy output with an early exit is token-identical to plain decoding, whoever comes and goes (float32)."""

from __future__ import annotations

import copy

import pytest
from lifecycle import assert_nothing_left, serve_joining_and_leaving
from toy_exits import NUM_LAYERS, exit_engine, exit_model, trained_exit, trained_head
from toys import TOY_FAMILIES, TOY_VOCAB, family_model, make_engine, random_prompts, run_tokens

from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.embedded.exit_head import ExitHead, OwnHead
from foredraft.integration.embedded.forward import ForwardPass, prepare_model
from foredraft.integration.sampling_params import SamplingParams

GREEDY = SamplingParams(temperature=0, max_tokens=12)
PROMPTS = random_prompts(8, seed=3, longest=30)
MODEL = exit_model()
TARGET = prepare_model(copy.deepcopy(MODEL))
HEADS: dict[str, ExitHead] = {
    "own": OwnHead(TARGET, 2),
    "one block": trained_head(trained_exit(MODEL, 1), TARGET),
    "two blocks": trained_head(trained_exit(MODEL, 1, num_blocks=2), TARGET),
    "one block, reads states": trained_head(trained_exit(MODEL, 2, reads_states=True), TARGET),
    "two blocks, reads states": trained_head(trained_exit(MODEL, 2, num_blocks=2, reads_states=True), TARGET),
}
EVERY_HEAD = pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
FAMILIES = [*((family, "plain") for family in TOY_FAMILIES), ("Llama", "fused"), ("Qwen3", "fused")]


def family_target(family: str, forward: str) -> ForwardPass:
    """With a head of its own: a random model with its embedding as head repeats the newest token for ever."""
    return prepare_model(family_model(family, NUM_LAYERS, tie_word_embeddings=False), forward)


def plain_engine(prepared: ForwardPass, num_rows: int = 1) -> EmbeddedEngine:
    return make_engine(SlotDecoder(prepared, num_rows, 256, 512, TOY_VOCAB))


@pytest.fixture(scope="module")
def plain() -> list[list[int]]:
    return run_tokens(plain_engine(TARGET), PROMPTS, GREEDY)


def assert_drafted(engine: EmbeddedEngine) -> None:
    """The exit is neither always right nor always wrong, so that both ends of a block are tried."""
    metrics = engine.metrics
    assert metrics.num_proposer_faults == 0
    assert 0.05 < metrics.num_accepted_tokens / metrics.num_drafted_tokens < 0.95
    assert_nothing_left(engine)


# ---- where the draft must be the target itself


@pytest.mark.parametrize(("family", "forward"), FAMILIES)
def test_leaving_after_the_last_layer_is_accepted_whole(family: str, forward: str) -> None:
    """The self-test: 1, not above; the bonus token does not count (F147)."""
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
    prepared = family_target(family, forward)
    expected = run_tokens(plain_engine(prepared), PROMPTS, params)
    assert len({token for one in expected for token in one}) > 10
    engine = exit_engine(prepared, OwnHead(prepared, NUM_LAYERS), num_rows=3)
    assert run_tokens(engine, PROMPTS, params) == expected
    metrics = engine.metrics
    assert metrics.num_accepted_tokens == metrics.num_drafted_tokens > 0
    assert metrics.num_emitted_tokens == sum(len(one) for one in expected)
    assert metrics.num_proposer_faults == 0


@pytest.mark.parametrize("num_blocks", [1, 2])
@pytest.mark.parametrize("forward", ["plain", "fused"])
def test_a_head_that_is_the_rest_of_the_target_is_accepted_whole(forward: str, num_blocks: int) -> None:
    """Its keys and values are those of the last layers: complete at every position, or it would err."""
    prepared = prepare_model(copy.deepcopy(MODEL), forward)
    expected = run_tokens(plain_engine(prepared), PROMPTS, GREEDY)
    head = trained_head(trained_exit(MODEL, NUM_LAYERS - num_blocks, num_blocks=num_blocks), prepared)
    engine = exit_engine(prepared, head, num_rows=3, prefill_chunk=7)
    assert run_tokens(engine, PROMPTS, GREEDY) == expected
    assert engine.metrics.num_accepted_tokens == engine.metrics.num_drafted_tokens > 0


# ---- where it errs now and then


@pytest.mark.parametrize(("family", "forward"), FAMILIES)
def test_another_exit_layer_is_another_acceptance_and_the_same_text(family: str, forward: str) -> None:
    """F175."""
    prepared = family_target(family, forward)
    expected = run_tokens(plain_engine(prepared), PROMPTS, GREEDY)
    accepted = []
    for exit_layer in range(1, NUM_LAYERS + 1):
        engine = exit_engine(prepared, OwnHead(prepared, exit_layer))
        assert run_tokens(engine, PROMPTS, GREEDY) == expected
        metrics = engine.metrics
        accepted.append(metrics.num_accepted_tokens / metrics.num_drafted_tokens)
    assert accepted[-1] == 1
    assert len(set(accepted)) >= 3, accepted


@EVERY_HEAD
@pytest.mark.parametrize(("num_rows", "width"), [(rows, width) for rows in (1, 6) for width in (1, 3, 8)])
def test_an_early_exit_leaves_greedy_output_alone(
    plain: list[list[int]], head: ExitHead, num_rows: int, width: int
) -> None:
    """Also with more requests than rows (F83, F99, F101)."""
    engine = exit_engine(TARGET, head, num_rows, width)
    assert run_tokens(engine, PROMPTS, GREEDY) == plain
    assert_drafted(engine)


@EVERY_HEAD
def test_drafts_do_not_depend_on_the_batch_or_on_chunks(head: ExitHead) -> None:
    """F95, F97, F101: equal counts of drafted and accepted tokens, request by request."""
    counts = []
    # A last chunk of one token would let a request draft a step earlier.
    prompts = [prompt for prompt in random_prompts(14, seed=5) if len(prompt) % 5 != 1]
    assert sum(len(prompt) > 10 for prompt in prompts) > 3
    for num_rows, options in ((1, {}), (8, {}), (3, {"prefill_chunk": 5})):
        engine = exit_engine(TARGET, head, num_rows, **options)
        finished = engine.generate(prompts, GREEDY)
        counts.append([one.outputs[0].speculation for one in finished])
        assert_drafted(engine)
    assert counts[1:] == counts[:1] * 2


@EVERY_HEAD
def test_requests_that_join_and_leave(plain: list[list[int]], head: ExitHead) -> None:
    """Some are aborted half-way and submitted again under their old id, as after a preemption (F93)."""
    engine = exit_engine(TARGET, head, num_rows=3, prefill_chunk=16)
    assert serve_joining_and_leaving(engine, PROMPTS, GREEDY) == plain
    assert_drafted(engine)


@EVERY_HEAD
def test_different_samplings_in_one_batch_equal_their_solo_runs(head: ExitHead) -> None:
    """F21, F23: seeded and greedy; drafts are drawn from each request's own stream and law."""
    params = [
        SamplingParams(temperature=1.0, seed=number, max_tokens=12, top_k=(0, 5)[number % 2])
        if number % 3
        else GREEDY
        for number in range(len(PROMPTS))
    ]
    engine = exit_engine(TARGET, head, num_rows=8)
    together = run_tokens(engine, PROMPTS, params)
    assert_drafted(engine)
    alone = [
        run_tokens(exit_engine(TARGET, head, num_rows=1), [prompt], one)[0]
        for prompt, one in zip(PROMPTS, params, strict=True)
    ]
    assert together == alone


@EVERY_HEAD
def test_nothing_of_a_rows_former_owner_is_read(plain: list[list[int]], head: ExitHead) -> None:
    """F101: keys, values and states of a row that was in use are anything."""
    prompts = PROMPTS[:3]
    engine = exit_engine(TARGET, head, num_rows=1)
    run_tokens(engine, prompts, GREEDY)
    decoder = engine.decoder
    assert isinstance(decoder, SlotDecoder)
    decoder.cache.keys.fill_(1e6)
    decoder.cache.values.fill_(1e6)
    if decoder._states is not None:
        decoder._states.states.fill_(1e6)
    again = exit_engine(TARGET, head, num_rows=1)
    counts = [one.outputs[0].speculation for one in again.generate(prompts, GREEDY)]
    finished = engine.generate(prompts, GREEDY)
    assert [one.outputs[0].token_ids for one in finished] == plain[:3]
    assert [one.outputs[0].speculation for one in finished] == counts


@EVERY_HEAD
def test_a_confidence_stop_drafts_less(plain: list[list[int]], head: ExitHead) -> None:
    drafted = []
    for min_confidence in (0.0, 0.15):
        engine = exit_engine(TARGET, head, 4, 6, min_confidence=min_confidence)
        assert run_tokens(engine, PROMPTS, GREEDY) == plain
        assert engine.metrics.num_proposer_faults == 0
        drafted.append(engine.metrics.num_drafted_tokens)
    assert 0 < drafted[1] < 0.8 * drafted[0]
