"""Who is served when: turns, batches, back-pressure, deadlines, leases, and health."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from draft_service import Clock, card_of, hosted_draft
from toys import toy_model

from foredraft.integration.embedded.forward import prepare_model
from foredraft.proposers.remote_messages import DraftAnswer, DraftRequest, RequestSampling, RequestUpdate
from foredraft.scheduler.draft_server import DraftServer, DraftServerError, DraftServerOptions
from foredraft.scheduler.draft_server.turns import Job, Turns

PREPARED = prepare_model(toy_model(1))


def message(
    target: str, step: int = 1, wanted: Sequence[int] = (3,), start: int = 0, deadline_s: float = 10.0
) -> DraftRequest:
    """New tokens of one request for each of ``wanted``."""
    sampling = RequestSampling(1) if start == 0 else None
    updates = [RequestUpdate(handle, start, (5, 6, 7), one, sampling) for handle, one in enumerate(wanted, 1)]
    return DraftRequest(target, step, deadline_s, updates)


def job(target: str, step: int = 1, wanted: Sequence[int] = (3,)) -> Job:
    return Job(message(target, step, wanted), 100.0)


def targets(jobs: Sequence[Job]) -> list[str]:
    return [one.request.target_id for one in jobs]


def make_server(*names: str, num_rows: int = 5, clock: Clock | None = None, **options: object) -> DraftServer:
    server = DraftServer(
        hosted_draft(PREPARED, num_rows),
        DraftServerOptions(gather_ms=0.0, **options),  # type: ignore[arg-type]
        clock or Clock(),
    )
    for name in names:
        assert server.hello(card_of(name)).refusal is None
    return server


# ---- turns


def test_a_target_with_many_requests_does_not_starve_others() -> None:
    """Of ten batches, all of whose room the big target would take, the small one is in every other."""
    turns = Turns(most_waiting=8, batch_tokens=100, gather_s=0.0, clock=Clock())
    batches = []
    for step in range(1, 11):
        turns.put(job("big", step, [10] * 20))
        turns.put(job("small", step, [2]))
        batches.append(targets(turns.take(0.0)))
    assert sum("small" in batch for batch in batches) == 5
    assert sum("big" in batch for batch in batches) == 5


def test_targets_that_fit_share_a_batch() -> None:
    turns = Turns(8, 100, 0.0, Clock())
    for name in "abc":
        turns.put(job(name, wanted=[10] * 4))
    assert targets(turns.take(0.0)) == ["a", "b"]
    turns.put(job("a", 2, [10] * 4))
    assert targets(turns.take(0.0)) == ["c", "a"]  # who waited longer comes first


def test_only_so_many_may_wait() -> None:
    turns = Turns(2, 100, 0.0, Clock())
    assert turns.put(job("a")) is None
    assert turns.put(job("b")) is None
    third = job("c")
    assert turns.put(third) is third
    newer = job("a", 2)
    replaced = turns.put(newer)  # its own place is not a further one
    assert replaced is not None
    assert replaced.request.step == 1


def test_an_older_message_is_not_served_after_a_newer_one() -> None:
    turns = Turns(2, 100, 0.0, Clock())
    turns.put(job("a", 5))
    turns.take(0.0)
    for step in (4, 5):
        late = job("a", step)
        assert turns.put(late) is late
    assert turns.put(job("a", 6)) is None


def test_it_waits_a_moment_for_targets_that_are_active() -> None:
    """The second one comes from another thread, while the first one waits."""
    turns = Turns(8, 100, gather_s=5.0)
    for name in "ab":
        turns.put(Job(message(name), turns._clock()))
    turns.take(0.0)
    turns.put(Job(message("a", 2), turns._clock()))
    second = threading.Timer(0.02, lambda: turns.put(Job(message("b", 2), turns._clock())))
    second.start()
    assert set(targets(turns.take(0.0))) == {"a", "b"}
    second.join()


def test_it_does_not_wait_for_a_target_that_is_alone() -> None:
    turns = Turns(8, 100, gather_s=1000.0)
    turns.put(Job(message("a"), turns._clock()))
    assert targets(turns.take(0.0)) == ["a"]


# ---- the server


def answers(server: DraftServer, *requests: DraftRequest) -> list[DraftAnswer]:
    """Of messages that wait together."""
    futures = [server.submit(request) for request in requests]
    while server.step():
        pass
    return [future.result(0) for future in futures]


def test_many_targets_are_drafted_for_in_one_batch_as_if_alone() -> None:
    names = ["a", "b", "c"]
    together = answers(make_server(*names, num_rows=7), *(message(name, wanted=(3, 2)) for name in names))
    (alone,) = answers(make_server("a"), message("a", wanted=(3, 2)))
    assert [one.token_ids for one in together] == [alone.token_ids] * 3
    server = make_server(*names, num_rows=7)
    answers(server, *(message(name, wanted=(3, 2)) for name in names))
    assert server.counts.num_batches == 1


def test_over_the_bound_it_is_busy() -> None:
    server = make_server("a", "b", "c", most_waiting=2)
    busy = [one.busy for one in answers(server, *map(message, ("a", "b", "c")))]
    assert busy == [False, False, True]
    assert server.counts.num_busy == 1


def test_a_message_whose_target_has_stopped_waiting_is_not_served() -> None:
    clock = Clock()
    server = make_server("a", clock=clock)
    future = server.submit(message("a", deadline_s=0.05))
    clock.now += 0.06
    server.step()
    assert future.result(0).busy
    assert (server.counts.num_late, server.counts.num_batches) == (1, 0)


def test_a_silent_target_is_taken_for_dead() -> None:
    clock = Clock()
    server = make_server("a", "b", clock=clock, lease_s=30.0)
    answers(server, message("a"), message("b"))
    clock.now += 20
    answers(server, message("b", 2))
    clock.now += 20
    server.step()
    assert server.statistics()["num_targets"] == server.statistics()["num_requests"] == 1
    (answer,) = answers(server, message("a", 2, start=3))
    assert answer.incarnation == ""  # whoever comes back says hello again, and sends everything


def test_a_target_that_never_asks_is_taken_for_dead_too() -> None:
    clock = Clock()
    server = make_server("a", clock=clock, lease_s=30.0)
    clock.now += 20
    server.step()
    assert server.statistics()["num_targets"] == 1
    clock.now += 20
    server.step()
    assert server.statistics()["num_targets"] == 0


def test_a_request_it_does_not_know_is_to_be_sent_again() -> None:
    server = make_server("a")
    (answer,) = answers(server, message("a", start=3))
    assert (answer.num_known, answer.token_ids) == ({1: 0}, {})


def test_a_gap_is_not_drafted_over() -> None:
    server = make_server("a")
    answers(server, message("a"))
    (answer,) = answers(server, message("a", 2, start=9))
    assert (answer.num_known, answer.token_ids) == ({1: 3}, {})


def test_a_message_that_repeats_what_is_known_changes_nothing() -> None:
    server = make_server("a")
    first, second = answers(server, message("a")) + answers(server, message("a", 2))
    assert first.token_ids == second.token_ids
    assert second.num_known == {1: 3}


def test_without_a_free_row_a_request_is_turned_away() -> None:
    server = make_server("a", num_rows=3)
    (answer,) = answers(server, message("a", wanted=(2, 2, 2)))
    assert set(answer.token_ids) == {1, 2}
    assert set(answer.turned_away) == {3}


def test_a_check_drafts_though_all_rows_are_taken() -> None:
    server = make_server("a", num_rows=2)
    answers(server, message("a"))
    worker = threading.Thread(target=server.run)
    worker.start()
    try:
        server.check(timeout_s=20)
        server._hosted.proposer.propose = lambda context: 1 / 0  # type: ignore[method-assign]
        with pytest.raises(DraftServerError, match="division by zero"):
            server.check(timeout_s=20)
    finally:
        server.close()
        worker.join()


def test_a_server_that_is_drained_finishes_what_waits() -> None:
    server = make_server("a", "b")
    waiting = server.submit(message("a"))
    worker = threading.Thread(target=server.run)
    worker.start()
    try:
        assert server.drain(20)
        assert waiting.result(20).token_ids
        assert server.submit(message("b")).result(0).busy
    finally:
        server.close()
        worker.join()


@pytest.mark.parametrize(
    ("name", "value"), [("most_waiting", 0), ("batch_tokens", 1.5), ("gather_ms", -1), ("lease_s", 0)]
)
def test_bad_options_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        DraftServerOptions(**{name: value})  # type: ignore[arg-type]
