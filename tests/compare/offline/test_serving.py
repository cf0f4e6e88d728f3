from collections.abc import Callable

import pytest

from foredraft.integration.compare.offline import serving
from foredraft.integration.compare.offline.engines import build_engines
from foredraft.integration.compare.offline.memory import engine_bytes
from foredraft.integration.compare.offline.prompts import CompareRequest, Prompt
from foredraft.integration.compare.offline.serving import run_block
from foredraft.integration.compare.plan import ComparePlan
from foredraft.integration.embedded.build import Target
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.engine import RequestOutput

LENGTHS = [9, 2, 14, 5, 1, 7]


@pytest.fixture
def engines(
    make_plan: Callable[..., ComparePlan], toy_target: Target, toy_prompts: dict[str, list[Prompt]]
) -> dict[str, EmbeddedEngine]:
    return build_engines(make_plan(batch_sizes=(4,), max_tokens=32), toy_target, toy_prompts)


def test_the_batch_is_kept_full_and_never_exceeded(
    engines: dict[str, EmbeddedEngine],
    make_requests: Callable[..., list[CompareRequest]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Engine rows would allow 4; the loop must hold back at 2."""
    engine = engines["none"]
    in_flight = []
    left = len(LENGTHS)

    def counting_step() -> list[RequestOutput]:
        nonlocal left
        in_flight.append((len(engine._requests), min(2, left)))
        outputs = EmbeddedEngine.step(engine)
        left -= sum(output.finished for output in outputs)
        return outputs

    monkeypatch.setattr(engine, "step", counting_step)
    run_block(engine, make_requests(LENGTHS), batch_size=2)
    assert len(in_flight) > max(LENGTHS)
    assert [running for running, _ in in_flight] == [expected for _, expected in in_flight]


@pytest.mark.parametrize("batch_size", [1, 3])
def test_outputs_keep_the_order_of_the_requests(
    engines: dict[str, EmbeddedEngine], make_requests: Callable[..., list[CompareRequest]], batch_size: int
) -> None:
    requests = make_requests(LENGTHS)
    alone = [run_block(engines["none"], [request], 1).outputs[0] for request in requests]
    assert [len(output) for output in alone] == LENGTHS
    assert run_block(engines["none"], requests, batch_size).outputs == alone


def test_counts_are_those_of_this_block_alone(
    engines: dict[str, EmbeddedEngine], make_requests: Callable[..., list[CompareRequest]]
) -> None:
    requests = make_requests([20] * 6)
    first, again = (run_block(engines["ngram"], requests, 2) for _ in range(2))
    assert first.num_emitted_tokens == again.num_emitted_tokens == 120
    assert first.num_emitted_tokens == sum(len(output) for output in first.outputs)
    assert 0 < first.num_accepted_tokens <= first.num_drafted_tokens
    # Of every pass of a request exactly one token was not drafted.
    assert first.num_passes + first.num_accepted_tokens == 120
    assert again.num_drafted_tokens == first.num_drafted_tokens
    assert 0 < sum(again.phase_seconds[phase] for phase in ("propose", "forward", "sample")) <= again.seconds


def test_plain_decoding_takes_one_pass_per_token(
    engines: dict[str, EmbeddedEngine], make_requests: Callable[..., list[CompareRequest]]
) -> None:
    run = run_block(engines["none"], make_requests(LENGTHS), 3)
    assert (run.num_drafted_tokens, run.num_passes) == (0, sum(LENGTHS))


def test_times_of_tokens_are_those_of_the_steps(
    engines: dict[str, EmbeddedEngine],
    make_requests: Callable[..., list[CompareRequest]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A clock that advances by a second a step: a token each, so time per token is a second."""
    engine, now = engines["none"], 0.0

    def step() -> list[RequestOutput]:
        nonlocal now
        now += 1.0
        return EmbeddedEngine.step(engine)

    monkeypatch.setattr(engine, "step", step)
    monkeypatch.setattr(serving.time, "perf_counter", lambda: now)
    run = run_block(engine, make_requests(LENGTHS), batch_size=1)
    assert [times.first_token_s for times in run.request_times] == [1.0] * 6
    per_token = [times.per_token_s for times in run.request_times]
    assert per_token == [None if length == 1 else 1.0 for length in LENGTHS]
    assert run.seconds == sum(LENGTHS)


def test_decoding_steps_leave_out_those_that_read_prompts(
    engines: dict[str, EmbeddedEngine], make_requests: Callable[..., list[CompareRequest]]
) -> None:
    run = run_block(engines["none"], make_requests(LENGTHS), batch_size=1)
    assert run.decode.num_steps == run.decode.num_tokens == sum(LENGTHS) - 6
    assert 0 < run.decode.seconds["forward"] < run.phase_seconds["forward"]


def test_acceptance_is_counted_by_position(
    engines: dict[str, EmbeddedEngine], make_requests: Callable[..., list[CompareRequest]]
) -> None:
    first, again = (run_block(engines["ngram"], make_requests([20] * 6), 2) for _ in range(2))
    assert sum(again.verified_per_position) == again.num_drafted_tokens
    assert sum(again.accepted_per_position) == again.num_accepted_tokens > 0
    assert again.accepted_per_position == first.accepted_per_position


def test_memory_is_what_the_engine_does_not_share(
    engines: dict[str, EmbeddedEngine], make_requests: Callable[..., list[CompareRequest]]
) -> None:
    engine = engines["none"]
    cache = engine.decoder.cache
    assert engine_bytes(engine) == cache.keys.nbytes + cache.values.nbytes
    assert run_block(engine, make_requests(LENGTHS), 1).memory_bytes == engine_bytes(engine)


def test_requests_enter_as_they_arrive_and_wait_for_a_place(
    engines: dict[str, EmbeddedEngine],
    make_requests: Callable[..., list[CompareRequest]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second a step and a token a step: two places, the third request finds none, the last comes late."""
    engine, now = engines["none"], 0.0

    def step() -> list[RequestOutput]:
        nonlocal now
        now += 1.0
        return EmbeddedEngine.step(engine)

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(engine, "step", step)
    monkeypatch.setattr(serving.time, "perf_counter", lambda: now)
    monkeypatch.setattr(serving.time, "sleep", sleep)
    requests = make_requests([4] * 6)[:4]
    run = run_block(engine, requests, batch_size=2, arrivals=[0.0, 0.5, 1.5, 20.25])
    # In at 0, 1 (a step was under way), 4 and 20.25; the first token comes a step later, the last after 4.
    assert [times.total_s for times in run.request_times] == [4.0, 4.5, 6.5, 4.0]
    assert [times.first_token_s for times in run.request_times] == [1.0, 1.5, 3.5, 1.0]
    assert run.seconds == 24.25
    assert run.outputs == run_block(engine, requests, batch_size=2).outputs
