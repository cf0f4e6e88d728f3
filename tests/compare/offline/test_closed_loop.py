from collections.abc import Callable

import pytest

from foredraft.integration.compare.offline.closed_loop import run_block
from foredraft.integration.compare.offline.prompts import CompareRequest, Prompt
from foredraft.integration.compare.offline.session import build_engines
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
