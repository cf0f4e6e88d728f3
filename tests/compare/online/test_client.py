import socket
from collections.abc import Callable
from typing import Any

import pytest

from foredraft.integration.compare.online.client import OnlineRequest, first_model, send
from foredraft.integration.compare.online.endpoint import Endpoint, parse_endpoints
from foredraft.integration.errors import UserError

REQUEST = OnlineRequest("p", (("user", "hello"),), max_tokens=9, temperature=0.5, seed=3)
MakeServer = Callable[[], Any]


def test_a_stream_is_read_and_timed(make_server: MakeServer) -> None:
    server = make_server()
    server.delay_s = 0.02
    reply = send(server.endpoint(), "toy", REQUEST, timeout_s=10)
    assert (reply.error, reply.text) == (None, "one two three four ")
    assert reply.num_tokens == 8, "as the server says, two tokens a piece"
    assert 0.02 <= reply.first_token_s < reply.seconds
    assert reply.seconds >= 0.08
    (body,) = server.bodies
    assert body["messages"] == [{"role": "user", "content": "hello"}]
    assert (body["max_tokens"], body["temperature"], body["seed"], body["stream"]) == (9, 0.5, 3, True)


def test_pieces_count_where_the_server_tells_no_usage(make_server: MakeServer) -> None:
    server = make_server()
    server.fault = "no_usage"
    assert send(server.endpoint(), "toy", REQUEST, timeout_s=10).num_tokens == 4


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("status", "HTTP 500"),
        ("garbage", "not JSON"),
        ("list", "no object"),
        ("shape", "no chat completion"),
        ("error_event", "out of memory"),
        ("cut", "ended before it was done"),
        ("empty", "no text came"),
    ],
)
def test_what_a_server_does_wrong_is_an_error_of_the_reply(
    make_server: MakeServer, fault: str, error: str
) -> None:
    server = make_server()
    server.fault = fault
    reply = send(server.endpoint(), "toy", REQUEST, timeout_s=10)
    assert reply.error is not None
    assert error in reply.error


def test_a_slow_server_is_given_up(make_server: MakeServer) -> None:
    server = make_server()
    server.delay_s = 0.2
    reply = send(server.endpoint(), "toy", REQUEST, timeout_s=0.3)
    assert reply.error == "timed out"
    assert reply.seconds < 0.8


def test_a_server_that_is_not_there_is_an_error() -> None:
    nowhere = Endpoint("a", f"http://127.0.0.1:{free_port()}")
    assert send(nowhere, "toy", REQUEST, timeout_s=5).error is not None
    with pytest.raises(UserError, match=r"--endpoint a: .* does not answer"):
        first_model(nowhere, 5)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_the_model_is_the_first_that_is_listed(make_server: MakeServer) -> None:
    assert first_model(make_server().endpoint(), 5) == "toy"


def test_endpoints() -> None:
    endpoints = parse_endpoints(["plain=http://h:1/v1/", "ours=https://h/base"])
    assert endpoints == [Endpoint("plain", "http://h:1"), Endpoint("ours", "https://h/base")]


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        (["a=http://h"], "two servers at least"),
        (["a=http://h", "a=http://g"], "'a' is given twice"),
        (["http://h", "b=http://h"], "NAME=URL"),
        (["a=ftp://h", "b=http://h"], "http or https"),
        (["a=http://", "b=http://h"], "http or https"),
    ],
)
def test_bad_endpoints_are_refused(texts: list[str], named: str) -> None:
    with pytest.raises(UserError, match=named):
        parse_endpoints(texts)
