"""Many clients at once: nothing is mixed up, left behind or waited for without end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from lifecycle import assert_nothing_left
from openai_server import SETTINGS, client_of, events, joined, letters_engine, real_server

from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.engine import RequestOutput
from foredraft.integration.sampling_params import SamplingParams
from foredraft.integration.server.engine_loop import EngineLoop
from foredraft.integration.server.settings import ServerSettings
from foredraft.integration.server.submission import Submission
from foredraft.scheduler.http.errors import ApiError

COMPLETE = "/v1/completions"
WAIT_S = 60


class GatedEngine(EmbeddedEngine):
    """Steps only while ``gate`` is open, and fails when told to."""

    def __init__(self, **options: Any) -> None:
        self.__dict__ |= letters_engine(**options).__dict__
        self.gate = threading.Event()
        self.gate.set()
        self.fails = False

    def step(self) -> list[RequestOutput]:
        assert self.gate.wait(WAIT_S)
        if self.fails:
            raise RuntimeError("the GPU is gone")
        return super().step()


@pytest.fixture
def engine() -> Iterator[GatedEngine]:
    engine = GatedEngine()
    yield engine
    engine.gate.set()


def ask(prompt: str = "abc", **options: Any) -> dict[str, Any]:
    return {"prompt": prompt, "temperature": 0, "max_tokens": 40} | options


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_many_clients_get_what_each_would_get_alone() -> None:
    prompts = [chr(97 + number) * (1 + number % 5) for number in range(24)]

    async def run() -> list[str]:
        async with client_of(letters_engine()) as client:
            asked = [
                client.post(COMPLETE, json=ask(prompt, stream=number % 2 == 0))
                for number, prompt in enumerate(prompts)
            ]
            answers = await asyncio.gather(*asked)
        return [
            joined(events(one.text)) if number % 2 == 0 else one.json()["choices"][0]["text"]
            for number, one in enumerate(answers)
        ]

    alone = letters_engine().generate(prompts, SamplingParams(temperature=0, max_tokens=40))
    assert asyncio.run(run()) == [output.outputs[0].text for output in alone]


def test_a_seed_repeats_and_no_seed_does_not() -> None:
    async def run() -> list[str]:
        async with client_of(letters_engine()) as client:
            asked = [ask(temperature=1, seed=seed) for seed in (5, 5, None, None)]
            return [(await client.post(COMPLETE, json=one)).json()["choices"][0]["text"] for one in asked]

    first, second, third, fourth = asyncio.run(run())
    assert first == second
    assert third != fourth


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_leaves_nothing_behind(engine: GatedEngine, stream: bool) -> None:
    with real_server(engine) as address:
        engine.gate.clear()
        with pytest.raises(httpx.TimeoutException):
            httpx.post(f"{address}{COMPLETE}", json=ask(stream=stream), timeout=0.5)
        engine.gate.set()
        wait_until(lambda: not engine.has_unfinished_requests())
        assert httpx.post(f"{address}{COMPLETE}", json=ask(max_tokens=2), timeout=WAIT_S).status_code == 200
    assert engine.metrics.num_emitted_tokens < 40
    assert_nothing_left(engine)


def test_a_client_that_stops_reading_a_stream_ends_its_request(engine: GatedEngine) -> None:
    with real_server(engine) as address:
        asked = ask(stream=True, max_tokens=120)
        with httpx.stream("POST", f"{address}{COMPLETE}", json=asked, timeout=WAIT_S) as answer:
            next(answer.iter_bytes())
            engine.gate.clear()
        time.sleep(0.3)
        engine.gate.set()
        wait_until(lambda: not engine.has_unfinished_requests())
    assert_nothing_left(engine)


def test_an_engine_that_fails_ends_open_requests_and_says_so(engine: GatedEngine) -> None:
    async def run() -> tuple[Any, ...]:
        async with client_of(engine) as client:
            engine.gate.clear()
            open_ones = [
                asyncio.create_task(client.post(COMPLETE, json=ask(stream=one))) for one in (False, True)
            ]
            await asyncio.sleep(0.3)
            engine.fails = True
            engine.gate.set()
            whole, stream = await asyncio.gather(*open_ones)
            later, health = await client.post(COMPLETE, json=ask()), await client.get("/health")
            return whole, stream, later, health, await client.get("/metrics")

    whole, stream, later, health, metrics = asyncio.run(asyncio.wait_for(run(), WAIT_S))
    assert whole.status_code == later.status_code == health.status_code == 503
    assert "the GPU is gone" in whole.json()["error"]["message"]
    # An error of the answer itself where nothing had been sent yet, else the last event.
    ended = events(stream.text)[-1] if stream.status_code == 200 else stream.json()
    assert ended["error"]["code"] == "engine_failed"
    assert "foredraft_engine_up{" in metrics.text
    assert 'proposer="ngram"} 0.0' in metrics.text


async def all_of(submission: Submission) -> None:
    while await submission.next_outputs():
        pass


def test_an_engine_that_fails_tells_everyone_whoever_left_before(engine: GatedEngine) -> None:
    async def run() -> None:
        loop = EngineLoop(engine)
        loop.start()
        asked = await loop.submit(["abc"], SamplingParams(max_tokens=40))
        engine.gate.clear()
        await asyncio.sleep(0.1)
        left, waits = (asyncio.create_task(loop.run(lambda _: None)) for _ in range(2))
        await asyncio.sleep(0.1)
        left.cancel()
        await asyncio.sleep(0)
        engine.fails = True
        engine.gate.set()
        with pytest.raises(ApiError, match="the GPU is gone"):
            await waits
        with pytest.raises(ApiError, match="the GPU is gone"):
            await all_of(asked)

    asyncio.run(asyncio.wait_for(run(), 5))


def test_health_asks_an_idle_engine_and_fails_when_it_hangs(engine: GatedEngine) -> None:
    settings = ServerSettings(("toy",), health_max_age_s=0.001, health_timeout_s=0.5)

    async def run() -> list[int]:
        async with client_of(engine, settings) as client:
            well = await client.get("/health")
            engine.gate.clear()
            await asyncio.sleep(0.05)  # until that proof is too old
            hung = await asyncio.gather(*(client.get("/health") for _ in range(5)))
            engine.gate.set()
            again = await client.get("/health")
            return [well.status_code, *(one.status_code for one in hung), again.status_code]

    assert asyncio.run(run()) == [200, *[503] * 5, 200]


def test_health_is_free_while_requests_flow(engine: GatedEngine) -> None:
    async def run() -> int:
        async with client_of(engine) as client:
            await client.post(COMPLETE, json=ask(max_tokens=4))
            steps = engine.metrics.num_steps
            assert (await client.get("/health")).status_code == 200
            return engine.metrics.num_steps - steps

    assert asyncio.run(run()) == 0


def test_more_than_the_queue_takes_is_refused(engine: GatedEngine) -> None:
    settings = ServerSettings(("toy",), max_open_requests=3)

    async def run() -> tuple[Any, ...]:
        async with client_of(engine, settings) as client:
            engine.gate.clear()
            first = asyncio.create_task(client.post(COMPLETE, json=ask(["a", "b"])))
            await asyncio.sleep(0.2)
            refused = await client.post(COMPLETE, json=ask(["c", "d"]))
            engine.gate.set()
            return refused, await first, await client.post(COMPLETE, json=ask(["c", "d"]))

    refused, first, later = asyncio.run(run())
    assert (refused.status_code, first.status_code, later.status_code) == (429, 200, 200)
    assert refused.json()["error"]["code"] == "queue_full"
    assert "retry-after" in refused.headers


def test_a_body_that_is_too_large_is_refused() -> None:
    settings = ServerSettings(("toy",), max_body_bytes=200)

    async def pieces() -> Any:
        for _ in range(10):
            yield b"a" * 100

    async def run() -> list[int]:
        async with client_of(letters_engine(), settings) as client:
            small = await client.post(COMPLETE, json=ask())
            large = await client.post(COMPLETE, json=ask("a" * 300))
            unannounced = await client.post(COMPLETE, content=pieces())
            return [one.status_code for one in (small, large, unannounced)]

    assert asyncio.run(run()) == [200, 413, 413]


def test_keys_are_asked_for_everywhere_but_at_health() -> None:
    settings = ServerSettings(("toy",), api_keys=("one", "two"))

    async def run() -> list[int]:
        async with client_of(letters_engine(), settings) as client:
            tries = [None, "three", "on", "onetwo", "one", "two"]
            headers = [{} if key is None else {"Authorization": f"Bearer {key}"} for key in tries]
            got = [await client.get("/v1/models", headers=one) for one in headers]
            return [
                one.status_code for one in (*got, await client.get("/health"), await client.get("/metrics"))
            ]

    assert asyncio.run(run()) == [401, 401, 401, 401, 200, 200, 200, 401]


def test_one_bad_prompt_of_several_leaves_no_other_behind(engine: GatedEngine) -> None:
    async def run() -> int:
        async with client_of(engine) as client:
            status = (await client.post(COMPLETE, json=ask(["a", "b", "c" * 500]))).status_code
            while engine.has_unfinished_requests():  # the engine's thread is about to drop the others
                await asyncio.sleep(0.01)
            return status

    assert asyncio.run(asyncio.wait_for(run(), WAIT_S)) == 400
    assert_nothing_left(engine)


def test_the_end_of_a_server_ends_its_open_requests(engine: GatedEngine) -> None:
    async def run() -> Any:
        async with client_of(engine) as client:
            engine.gate.clear()
            open_one = asyncio.create_task(client.post(COMPLETE, json=ask()))
            await asyncio.sleep(0.2)
            threading.Timer(0.2, engine.gate.set).start()
            return open_one

    async def whole() -> Any:
        return await (await run())

    answer = asyncio.run(whole())
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "shutting_down"


def test_the_metrics_are_the_engines_and_compare_reads_them(engine: GatedEngine) -> None:
    from foredraft.integration.compare.online.server_metrics import parse_counts

    async def run() -> str:
        async with client_of(engine, SETTINGS) as client:
            await client.post(COMPLETE, json=ask())
            return (await client.get("/metrics")).text

    counts = parse_counts(asyncio.run(run()))
    assert counts is not None
    assert counts.drafted == engine.metrics.num_drafted_tokens > 0
    assert counts.accepted == engine.metrics.num_accepted_tokens > 0
    assert sum(counts.per_position) == counts.accepted
    assert counts.drafts == engine.metrics.verified_per_position[0]


def test_more_prompts_than_may_ever_be_open_are_the_clients_fault(engine: GatedEngine) -> None:
    async def run() -> Any:
        async with client_of(engine, ServerSettings(("toy",), max_open_requests=3)) as client:
            return await client.post(COMPLETE, json=ask(["a"] * 4))

    refused = asyncio.run(asyncio.wait_for(run(), WAIT_S))
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "prompt")
