"""Acceptance and costs through a real engine, with proposers whose acceptance is known."""

from functools import cache

import pytest
from toys import ScriptedProposer, make_engine, oracle_of, random_prompts, run_tokens, toy_decoder

from foredraft.integration.align.costs import MIN_ROUNDS, measure_costs
from foredraft.integration.align.measure import AlignPrompt, measure_acceptance, watch_acceptance
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.sampling_params import SamplingParams

PROMPTS = random_prompts(6, longest=12)
SAMPLING = SamplingParams(temperature=0, max_tokens=13)
ALIGNED = [AlignPrompt("even" if number % 2 == 0 else "odd", ids) for number, ids in enumerate(PROMPTS)]


@cache
def known_runs() -> list[list[int]]:
    """Prompts and greedy outputs."""
    long = SAMPLING.model_copy(update={"max_tokens": 60})
    plain = run_tokens(make_engine(toy_decoder()), PROMPTS, long)
    return [prompt + output for prompt, output in zip(PROMPTS, plain, strict=True)]


def engine_with(
    num_right: int, num_draft_tokens: int = 3, lengths: list[int] | None = None
) -> EmbeddedEngine:
    proposer = ScriptedProposer(oracle_of(known_runs()), num_right=num_right, lengths=lengths)
    return make_engine(toy_decoder(), proposer, num_draft_tokens)


def test_a_draft_right_at_two_of_three_places() -> None:
    engine = engine_with(num_right=2)
    acceptance = measure_acceptance(engine, ALIGNED, 0.0, sampling=SAMPLING, batch_size=3)
    assert acceptance.complete
    assert list(acceptance.categories) == ["even", "odd"]
    # Of 13 tokens the prompt's own pass yields one, then each block three: four blocks of three drafted.
    for counts in acceptance.categories.values():
        assert counts.num_prompts == 3
        assert counts.judged_per_position[:2] == [12, 12]
        assert counts.position_acceptance[:2] == [1.0, 1.0]
        assert counts.position_acceptance[2:] in ([0.0], [])
        assert (counts.num_steps, counts.num_emitted_tokens) == (15, 39)
        assert counts.num_accepted_tokens == 24
    assert acceptance.drafted_share == 1.0
    assert not engine.has_unfinished_requests()


def test_an_oracle_is_always_right() -> None:
    acceptance = measure_acceptance(engine_with(99), ALIGNED, 0.0, sampling=SAMPLING, batch_size=2)
    assert acceptance.overall.acceptance_rate == 1.0


def test_empty_drafts_are_no_data() -> None:
    engine = engine_with(99, lengths=[0])
    acceptance = measure_acceptance(engine, ALIGNED, 0.0, sampling=SAMPLING, batch_size=2)
    assert acceptance.overall.acceptance_rate is None
    assert acceptance.drafted_share == 0.0
    assert acceptance.overall.acceptance_length == 1.0


def test_time_ends_it_and_frees_the_engine() -> None:
    engine = engine_with(99)
    controller = engine.controller
    for _ in range(2):  # the same names again: nothing was left behind
        acceptance = measure_acceptance(engine, ALIGNED, 0.0, sampling=SAMPLING, batch_size=2, seconds=0)
        assert not acceptance.complete
        assert acceptance.overall.num_prompts == 2
        assert not engine.has_unfinished_requests()
    assert engine.controller is controller
    assert isinstance(engine.proposer, ScriptedProposer)
    assert engine.proposer.live == set()


def test_an_interruption_keeps_the_counts_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_with(99)
    step, num_steps = engine.step, 0

    def interrupted() -> object:
        nonlocal num_steps
        num_steps += 1
        if num_steps == 4:
            raise KeyboardInterrupt
        return step()

    monkeypatch.setattr(engine, "step", interrupted)
    seen = []
    with pytest.raises(KeyboardInterrupt):
        seen.extend(watch_acceptance(engine, ALIGNED, 0.0, sampling=SAMPLING, batch_size=2))
    assert seen[-1].overall.num_steps == 6
    assert not seen[-1].complete


def test_seeds_make_it_repeatable() -> None:
    def rates(seed: int) -> list[int]:
        sampling = SAMPLING.model_copy(update={"seed": seed})
        acceptance = measure_acceptance(engine_with(99), ALIGNED, 0.4, sampling=sampling, batch_size=4)
        return [acceptance.overall.num_drafted_tokens, *acceptance.overall.judged_per_position]

    first = rates(1)
    assert rates(1) == first
    assert any(rates(seed) != first for seed in (2, 3, 4))


def test_costs_of_a_full_batch() -> None:
    engine = engine_with(num_right=1)
    controller = engine.controller
    costs = measure_costs(engine, PROMPTS, 0.0, batch_size=3, seconds=0)
    assert costs is not None
    assert costs.num_rounds == MIN_ROUNDS
    assert (costs.batch_size, costs.num_draft_tokens) == (3, 3)
    assert costs.draft_s[0] == 0.0
    assert costs.step_ratios[0] == 1.0
    assert all(seconds > 0 for seconds in [*costs.pass_s, *costs.draft_s[1:], *costs.step_s])
    assert all(step >= one for step, one in zip(costs.step_s, costs.pass_s, strict=True))
    assert not engine.has_unfinished_requests()
    assert engine.controller is controller


def test_rounds_are_whole_and_draft_in_turn() -> None:
    engine = engine_with(num_right=0, num_draft_tokens=2)
    proposer = engine.proposer
    assert isinstance(proposer, ScriptedProposer)
    measure_costs(engine, [PROMPTS[0]], 0.0, batch_size=1, seconds=0)
    drafted = [outcome.num_drafted for outcome in proposer.outcomes]
    assert drafted[-3 * MIN_ROUNDS :] == [0, 1, 2] * MIN_ROUNDS


def test_costs_begin_again_where_the_room_ends() -> None:
    """12 positions after a prompt of 4: less than the rounds need."""
    prompt = [1, 2, 3, 4]
    engine = make_engine(toy_decoder(capacity=16), ScriptedProposer(lambda tokens: [0, 0, 0], num_right=0), 2)
    costs = measure_costs(engine, [prompt], 0.0, batch_size=2, seconds=0)
    assert costs is not None
    assert costs.num_rounds == MIN_ROUNDS
    assert costs.context < 16


def test_drafts_shorter_than_asked_have_no_costs() -> None:
    """A pass over tokens that were never drafted took no time; it used to be reported as nearly free."""
    empty = ScriptedProposer(lambda tokens: [])
    engine = make_engine(toy_decoder(), empty, 3)
    assert measure_costs(engine, PROMPTS, 0.0, batch_size=3, seconds=5.0) is None
    assert len(empty.outcomes) < 3 * 100, "it gives up"


def test_no_room_or_no_proposer_means_no_costs() -> None:
    """6 positions after the prompt: a round would end with drafts cut short, which cost less."""
    proposer = ScriptedProposer(lambda tokens: [0, 0, 0], num_right=0)
    tight, plain = make_engine(toy_decoder(capacity=10), proposer, 3), make_engine(toy_decoder())
    assert measure_costs(tight, [[1, 2, 3, 4]], 0.0, batch_size=1) is None
    assert measure_costs(plain, [[1, 2, 3, 4]], 0.0, batch_size=1) is None
