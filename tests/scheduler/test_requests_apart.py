"""What the controller keeps of each request, and what it says."""

from dataclasses import replace

import pytest
from loads import PASSES, WARM_UP, calibrated, load, member, run_of

from foredraft.proposers import Outcome
from foredraft.scheduler.speculation import (
    NO_LIMIT,
    AdaptiveDraftLength,
    Choice,
    Decision,
    DraftBatch,
    Member,
    StepReport,
)
from foredraft.scheduler.speculation.loss_account import ALLOWANCE
from foredraft.scheduler.speculation.scripted_load import Load, play


def test_lengths_differ_where_acceptance_does() -> None:
    """F121, F119: two requests with very different acceptance get very different lengths."""
    script = load(lambda step, request: 0.9 if request == 0 else 0.05, "steep", batch=lambda step: 2)
    run = run_of(script)
    first, second = zip(*run.lengths[WARM_UP:], strict=True)
    assert sum(first) > 8 * sum(second)
    assert run.against_best(WARM_UP) > 0.95
    assert len({length for lengths in run.lengths for length in lengths}) > 2


def batch_of(*rooms: int, limits: list[int] | None = None, context_len: int = 10) -> DraftBatch:
    names = [f"request {place}" for place in range(len(rooms))]
    return DraftBatch(names, rooms, [context_len] * len(rooms), limits or [NO_LIMIT] * len(rooms))


def test_a_request_that_wants_none_gets_none() -> None:
    controller = calibrated(load(0.9))
    longest = 0
    for step in range(30):
        batch = batch_of(50, 50, 2, limits=[NO_LIMIT, 0, 9], context_len=10 + step)
        choice = controller.choose(batch)
        assert choice.lengths[1] == 0
        assert choice.lengths[2] <= 2
        longest = max(longest, choice.lengths[0])
        report(controller, batch, choice)
    assert longest > 2


def test_no_request_can_draft() -> None:
    controller = calibrated(load(0.9))
    assert controller.choose(batch_of()) == Choice([], [])
    assert controller.choose(batch_of(0, -1)).lengths == [0, 0]


def test_many_requests_come_and_go() -> None:
    """State is given back: rows are used again, and begin afresh."""
    controller = calibrated(load(0.9))
    for step in range(60):
        names = [f"{step}-{place}" for place in range(40)]
        batch = DraftBatch(names, [20] * 40, [10] * 40, [NO_LIMIT] * 40)
        report(controller, batch, controller.choose(batch))
        for name in names:
            controller.release(name)
            controller.release(name)
    assert controller._requests.size <= 64


def report(controller: AdaptiveDraftLength, batch: DraftBatch, choice: Choice) -> None:
    outcomes = [
        Outcome(name, start, length, length, length, (0,) * (length + 1))
        for name, start, length in zip(batch.request_ids, batch.context_lens, choice.lengths, strict=True)
    ]
    num_tokens = len(outcomes) + sum(choice.lengths)
    controller.observe(StepReport(outcomes, choice, [0.0], 1.0, 1.0 + 0.01 * num_tokens, num_tokens))


def test_an_aborted_request_has_no_outcome() -> None:
    controller = calibrated(load(0.9))
    batch = batch_of(50, 50, 50)
    choice = controller.choose(batch)
    left = DraftBatch(batch.request_ids[:2], batch.rooms[:2], batch.context_lens[:2], batch.limits[:2])
    report(controller, left, Choice(choice.lengths[:2], choice.members[:2]))
    controller.release("request 2")
    assert len(controller.choose(left).lengths) == 2


def test_a_draft_that_comes_late_counts_for_its_own_arm() -> None:
    """vLLM may leave a request out of a step, and verify its draft in the next one."""
    controller = calibrated(load(0.9))
    both = batch_of(50, 50)
    choice = controller.choose(both)
    assert all(choice.lengths)
    one = DraftBatch(both.request_ids[:1], [50], [10], [NO_LIMIT])
    report(controller, one, Choice(choice.lengths[:1], choice.members[:1]))
    controller.choose(one)
    report(controller, both, choice)
    counts = controller._learned.acceptance._counts.reshape(controller._requests.size, 2, -1)
    late = controller._requests.rows_of(both.request_ids)[1]
    assert counts[late, 1].any()
    assert not counts[late, 0].any()


def test_what_a_member_has_to_read_at_most() -> None:
    members = [Member("model", 4), Member("head", 4, most_unread=64), Member("look-up", 4, most_unread=0)]
    table = AdaptiveDraftLength(members, {1: 1.0, 16: 1.1})._requests
    batch = DraftBatch(["short", "long"], [9, 9], [30, 1_000], [NO_LIMIT] * 2)
    assert table.running(batch, 4).unread.tolist() == [[30, 30, 0], [1_000, 64, 0]]


def test_an_id_that_is_used_again_is_planned_for_at_once() -> None:
    """Though the plan for the request before, of the same id, had nothing for it."""
    controller = AdaptiveDraftLength([Member("look-up", 4, 3, 0.0)], {1: 1.0, 16: 1.1})
    for step in range(40):
        batch = DraftBatch(["one"], [500], [10 + step], [NO_LIMIT], [[step % 3]])
        choice = controller.choose(batch)
        outcome = Outcome("one", 10 + step, choice.lengths[0], choice.lengths[0], 0, (0,))
        controller.observe(StepReport([outcome], choice, [0.2 * any(choice.lengths)], 1.0, 1.2, 1))
        quiet = replace(batch, prospects=[[0]])
        if step > 20 and controller._planner.leaves_out(quiet, controller._step + 1):
            break
    assert controller._planner.leaves_out(quiet, controller._step + 1)
    controller.release("one")
    assert not controller._planner.leaves_out(quiet, controller._step + 1)


def test_catching_up_is_part_of_the_cost() -> None:
    """A request about to end does not take up drafting with a model that must first read a long prompt."""
    lengths = {}
    for room in (6, 4_000):
        controller = AdaptiveDraftLength([Member("model", 4, 1, 0.05)], {1: 1.0, 16: 1.16})
        for step in range(
            40
        ):  # requests that come and go, each of which the model has to read: 0.005 s a token
            batch = DraftBatch([str(step)], [4_000], [100], [NO_LIMIT])
            choice = controller.choose(batch)
            length = choice.lengths[0]
            outcome = Outcome(str(step), 100, length, length, length, (0,) * (length + 1))
            propose_s = (0.05 * length + 0.005 * 100) if length else 0.0
            controller.observe(StepReport([outcome], choice, [propose_s], 1.0, 1.0 + propose_s, 1 + length))
            controller.release(str(step))
        new = DraftBatch(["new"], [room], [2_000], [NO_LIMIT])
        lengths[room] = [controller.choose(new).lengths[0] for _ in range(3)][-1]
    assert lengths[6] == 0
    assert lengths[4_000] == 4


# ---- several members


def test_each_request_has_the_member_that_suits_it() -> None:
    script = Load(
        [
            member(lambda step, request: 0.85 if request == 0 else 0.05),
            member(lambda step, request: 0.05 if request == 0 else 0.7, "model", draft_s=(0.03, 0.01)),
        ],
        batch=lambda step: 2,
    )
    run = run_of(script)
    chosen = [choice.members for choice in run.choices[WARM_UP:]]
    assert sum(members[0] == 0 for members in chosen) > 0.85 * len(chosen)
    assert sum(members[1] == 1 for members in chosen) > 0.85 * len(chosen)
    assert run.against_best(WARM_UP) > 0.95


@pytest.mark.parametrize("seed", range(3))
def test_a_look_up_where_it_finds_something_and_a_model_elsewhere(seed: int) -> None:
    finds = lambda step, request: int(step % 5 == 0)  # noqa: E731 - a script
    members = [member(0.9, prospects=finds), member(0.6, "model")]
    both = run_of(Load(members), seed=seed)
    alone = [run_of(Load([one]), seed=seed) for one in members]
    speed = [run.against_plain(WARM_UP) for run in (both, *alone)]
    assert speed[0] > 1.05 * max(speed[1:])
    assert both.against_best(WARM_UP) > 0.96


@pytest.mark.parametrize("seed", range(3))
def test_a_member_that_became_better_is_taken_up(seed: int) -> None:
    members = [
        member(lambda step, request: 0.5 if step < 200 else 0.1, "model"),
        member(lambda step, request: 0.0 if step < 200 else 0.8, "model"),
    ]
    run = run_of(Load(members), 400, seed)
    early = [choice.members[0] for choice in run.choices[WARM_UP:200] if choice.lengths[0]]
    late = [choice.members[0] for choice in run.choices[260:] if choice.lengths[0]]
    assert early.count(0) > 0.8 * len(early)
    assert late.count(1) > 0.8 * len(late)


@pytest.mark.parametrize("rate", [0.0, 0.4])
@pytest.mark.parametrize("seed", range(3))
def test_trying_another_member_for_short_requests_costs_little(rate: float, seed: int) -> None:
    """Every request is new to the other member; that drafts gain elsewhere does not pay for it."""
    members = [member(0.9, prospects=lambda step, request: int(request < 2)), member(rate, "model")]
    scripts = [Load(some, lambda step: 4, PASSES["steep"], lifetime=8) for some in (members, members[:1])]
    both, alone = (play(script, calibrated(script), 400, seed, best=False) for script in scripts)
    assert both.against_plain() > 0.97 * alone.against_plain()


def test_probes_of_a_plan_without_drafts_are_not_the_account_of_those_beside_drafts() -> None:
    """Neither their cost nor their hits: the balance of the batch pays for them."""
    script = load(0.5, draft_s=(0.7, 0.0))
    controller = calibrated(script)
    controller._probe_account.balance = 0.0
    run = play(script, controller, 400, best=False)
    assert sum(map(any, run.lengths)) > 5
    assert controller._probe_account.balance == pytest.approx(400 * ALLOWANCE)


# ---- what it says


def test_a_line_whenever_the_plan_changes() -> None:
    script = load(lambda step, request: 0.9 if step < 100 else 0.0, "steep")
    controller = calibrated(script)
    lines: list[str] = []
    controller.on_change = lines.append
    play(script, controller, 200)
    assert "(gain)" in lines[0]
    assert "draft nothing (no gain)" in lines[-1] or "draft nothing (nothing left" in lines[-1]
    assert "predicted tokens/s" in lines[0]
    assert len(lines) < 30
    assert isinstance(controller.decision, Decision)
    assert controller.decision.predicted_tokens_per_s == pytest.approx(1.0, rel=0.15)
