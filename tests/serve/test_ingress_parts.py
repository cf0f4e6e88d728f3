"""The parts of the ingress that need no Ray: reading along, merging pages, refusing at the start."""

from __future__ import annotations

import asyncio
import json
import pickle
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from openai_server import letters_engine
from serve_replicas import ToyReplica

from foredraft.integration.config import Config
from foredraft.integration.config_sources import load_config
from foredraft.integration.server.app import create_app
from foredraft.integration.server.replica import EmbeddedReplica
from foredraft.integration.server.settings import ServerSettings
from foredraft.integration.vllm.replica import VllmReplica
from foredraft.scheduler.http.asgi import Message, Receive, Scope, Send
from foredraft.scheduler.http.errors import DONE, ApiError
from foredraft.scheduler.serve import Autoscaling, ServeOptions, StandingPolicy, Variant
from foredraft.scheduler.serve.asgi_call import Lifespan, call_app
from foredraft.scheduler.serve.forwarding import Relayed
from foredraft.scheduler.serve.ingress_metrics import IngressMetrics
from foredraft.scheduler.serve.messages import HttpCall, ReplyStart, probe_call
from foredraft.scheduler.serve.passage import Passage
from foredraft.scheduler.serve.reply_watch import ReplyWatch
from foredraft.scheduler.serve.standing import Standings
from foredraft.scheduler.serve.variant import check_variants


def test_a_stream_is_read_wherever_its_pieces_are_cut() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 8, "total_tokens": 11}
    events = [{"choices": [{"text": "x"}], "usage": None}, {"choices": [], "usage": usage}]
    text = (
        b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events) + b"data: [DONE]\n\n"
    )
    for size in (1, 7, 50, 1000):
        watch = ReplyWatch()
        for begin in range(0, len(text), size):
            watch.stream_piece(text[begin : begin + size])
        assert (watch.prompt_tokens, watch.completion_tokens, watch.error) == (3, 8, None)


def test_an_error_inside_a_stream_is_seen() -> None:
    watch = ReplyWatch()
    watch.stream_piece(b'data: {"error": {"message": "the engine failed"}}\n\ndata: [DONE]\n\n')
    assert watch.error == "the engine failed"


@pytest.mark.parametrize(
    ("error", "is_clients"),
    [
        (ApiError(400, "no token is possible", code="no_token").as_json(), True),
        (ApiError(500, "no token is possible", code="no_token").as_json(), False),
        (ApiError(503, "the engine failed").as_json(), False),
        ({"error": {"message": "too long", "type": "BadRequestError", "code": 400}}, True),
        ({"error": {"message": "died", "type": "InternalServerError", "code": 500}}, False),
    ],
)
def test_what_a_client_did_wrong_in_a_stream_is_no_fault_of_the_variant(
    error: dict[str, Any], is_clients: bool
) -> None:
    standings = Standings({"a": 1.0}, StandingPolicy(), time.monotonic)
    passage = Passage("a", True, standings, IngressMetrics(standings))
    reply = FakeReply([b"data: " + json.dumps(error).encode() + b"\n\n", DONE])
    response = Relayed("a", reply, passage).response()  # type: ignore[arg-type]

    async def run() -> None:
        async def send(_: Message) -> None:
            pass

        await response({"type": "http"}, asyncio.Event().wait, send)  # type: ignore[arg-type]

    asyncio.run(run())
    errors = standings.status()["variants"][0]["errors_in_window"]
    assert errors == (0 if is_clients else 1)


class FakeReply:
    """An answer that has begun."""

    start = ReplyStart(200, ((b"content-type", b"text/event-stream"),))

    def __init__(self, parts: Sequence[bytes]) -> None:
        self._parts = parts

    async def pieces(self) -> AsyncIterator[bytes]:
        for part in self._parts:
            yield part

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    "text", [b"", b"null", b"[1]", b"{not", b'{"usage": 3}', b'{"usage": {"prompt_tokens": -1}}']
)
def test_what_says_nothing_counts_nothing(text: bytes) -> None:
    watch = ReplyWatch()
    watch.document(text)
    assert (watch.prompt_tokens, watch.completion_tokens, watch.error) == (0, 0, None)


def test_pages_of_replicas_become_one() -> None:
    from foredraft.scheduler.serve.metrics_pages import ReplicaPage, acceptance_rate, merged_pages

    text = "# TYPE drafts counter\n{0}spec_decode_num_draft_tokens_total 10.0\n"
    text += "vllm:spec_decode_num_accepted_tokens_total {1}\n"
    pages = [
        ReplicaPage("a", f"r{place}", text.replace("{0}", "vllm:").replace("{1}", str(accepted)))
        for place, accepted in enumerate((4.0, 6.0))
    ]
    merged = merged_pages(pages)
    assert 'vllm:spec_decode_num_accepted_tokens_total{replica="r1",variant="a"} 6.0' in merged
    assert acceptance_rate(pages) == 0.5
    assert acceptance_rate([]) is None


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Variant("", "m:f"), "name"),
        (lambda: Variant("a#b", "m:f"), "name"),
        (lambda: Variant("ingress", "m:f"), "ingress"),
        (lambda: Variant("a", "m:f", weight=-1), "weight"),
        (lambda: Variant("a", "m:f", weight=float("nan")), "weight"),
        (lambda: Variant("a", "m:f", num_replicas=0), "num_replicas"),
        (lambda: Variant("a", "m:f", bundle_labels=({},)), "bundle_labels"),
        (lambda: Variant("a", "m:f", health_check_period_s=0), "health_check_period_s"),
        (lambda: Autoscaling(min_replicas=3, max_replicas=2), "min_replicas"),
        (lambda: StandingPolicy(max_error_rate=1.0), "max_error_rate"),
        (lambda: StandingPolicy(window_s=0), "window_s"),
        (lambda: ServeOptions(api_keys=("",)), "api_keys"),
        (lambda: ServeOptions(accept_timeout_s=0), "accept_timeout_s"),
        (lambda: check_variants(()), "one at least"),
        (lambda: check_variants((Variant("a", "m:f"), Variant("a", "m:f"))), "twice"),
        (lambda: check_variants((Variant("a", "m:f", weight=0),)), "weight"),
    ],
)
def test_what_cannot_be_is_refused_by_name(make: Callable[[], Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        make()


def test_factories_of_replicas_can_be_pickled() -> None:
    settings = ServerSettings(("toy",), api_keys=("secret",))
    embedded = EmbeddedReplica(Config(proposer="none"), settings)
    vllm = VllmReplica(load_config(None, {"proposer": "none"}), ("--enforce-eager",))
    for factory in (embedded, vllm):
        assert pickle.loads(pickle.dumps(factory)) == factory
    assert "secret" not in repr(embedded)


async def collected(app: Any, call: HttpCall) -> tuple[int, bytes]:
    pieces = [piece async for piece in call_app(app, call)]
    start = pieces[0]
    assert isinstance(start, ReplyStart)
    return start.status, b"".join(piece for piece in pieces[1:] if isinstance(piece, bytes))


def test_an_app_is_called_without_a_socket() -> None:
    async def run() -> tuple[int, bytes]:
        app = create_app(letters_engine(), ServerSettings(("toy",)))
        lifespan = Lifespan(app)
        await lifespan.startup()
        answer = await collected(app, probe_call())
        await lifespan.shutdown()
        return answer

    status, body = asyncio.run(run())
    assert status == 200
    assert json.loads(body)["usage"]["completion_tokens"] == 1


def test_closing_an_answer_early_cancels_the_app() -> None:
    ended = []

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            while True:
                await send({"type": "http.response.body", "body": b"x", "more_body": True})
                await asyncio.sleep(0)
        finally:
            ended.append(True)

    async def run() -> None:
        answer = call_app(endless, probe_call())
        async for piece in answer:
            if piece == b"x":
                break
        await answer.aclose()  # type: ignore[attr-defined]

    asyncio.run(asyncio.wait_for(run(), 10))
    assert ended == [True]


def test_closing_an_answer_that_nobody_reads_cancels_the_app_too() -> None:
    async def fast(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            while True:
                await send({"type": "http.response.body", "body": b"x", "more_body": True})
        finally:
            await send({"type": "http.response.body", "body": b"last"})

    async def run() -> None:
        answer = call_app(fast, probe_call())
        await anext(answer)
        await asyncio.sleep(0.05)  # until the queue is full
        await answer.aclose()  # type: ignore[attr-defined]

    asyncio.run(asyncio.wait_for(run(), 5))


def test_an_app_that_raises_raises_here_and_one_that_does_not_start_says_why() -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("no weights")

    with pytest.raises(RuntimeError, match="no weights"):
        asyncio.run(collected(broken, probe_call()))
    with pytest.raises(RuntimeError, match="no weights"):
        asyncio.run(Lifespan(broken).startup())


def test_a_toy_replica_is_an_app(tmp_path: Any) -> None:
    assert callable(ToyReplica("a", str(tmp_path))())
