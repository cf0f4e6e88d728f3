import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from foredraft.integration.compare.online.client import OnlineRequest, find_model, send
from foredraft.integration.compare.online.endpoint import Endpoint, parse_endpoints, with_keys, with_models
from foredraft.integration.compare.online.server_metrics import read_counts
from foredraft.integration.compare.online.server_text import whole_letters
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


def test_pieces_are_no_tokens_where_the_server_tells_no_usage(make_server: MakeServer) -> None:
    """A server that speculates sends several tokens in a piece: counting these called it slower."""
    server = make_server()
    server.fault = "no_usage"
    reply = send(server.endpoint(), "toy", REQUEST, timeout_s=10)
    assert (reply.error, reply.num_tokens) == (None, None)


@pytest.mark.parametrize("count", [10, 10**9, 10**400, 0, -1, True, 4.0, "4", None, [4]])
def test_a_number_of_tokens_that_cannot_be_is_not_believed(make_server: MakeServer, count: object) -> None:
    server = make_server()
    server.usage = [] if count is None else count
    reply = send(server.endpoint(), "toy", REQUEST, timeout_s=10)
    assert (reply.error, reply.num_tokens) == (None, None)


def test_halves_of_a_letter_do_not_stay(make_server: MakeServer) -> None:
    """JSON may hold them, the journal and the page cannot."""
    server = make_server()
    server.text = "\ud83d \ude00"
    text = send(server.endpoint(), "toy", REQUEST, timeout_s=10).text
    assert text == "\ufffd \ufffd "
    assert whole_letters("\ud83d" + "\ude00") == "\U0001f600"


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("status", "HTTP 500"),
        ("garbage", "not JSON"),
        ("list", "no object"),
        ("shape", "no completion"),
        ("error_event", "out of memory"),
        ("cut", "ended before it was done"),
        ("empty", "no text came"),
        ("escape", "the server says:  [31mred"),
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
    assert reply.error.isprintable()


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
        find_model(nowhere, 5)


def test_a_page_that_never_ends_is_given_up(make_server: MakeServer) -> None:
    """Each letter came in time, so the page was waited for without end."""
    server = make_server()
    server.fault = "dribble"
    with pytest.raises(UserError, match="does not answer: timed out"):
        find_model(server.endpoint(), 0.3)
    server.drafts = True
    assert read_counts(server.endpoint(), 0.3) is None


def test_a_server_that_hangs_up_is_told_so(make_server: MakeServer) -> None:
    server = make_server()
    server.fault = "short"
    with pytest.raises(UserError, match="does not answer: the connection broke off in the middle"):
        find_model(server.endpoint(), 5)


def test_a_server_that_is_none_is_told_so(make_server: MakeServer) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        threading.Thread(target=_say_hello, args=(listener,), daemon=True).start()
        with pytest.raises(UserError, match="does not answer: what it answers is not HTTP"):
            find_model(Endpoint("a", f"http://127.0.0.1:{listener.getsockname()[1]}"), 5)


def _say_hello(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(4096)
        connection.sendall(b"SSH-2.0-hello\r\n")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_the_model_is_the_first_that_is_listed(make_server: MakeServer) -> None:
    assert find_model(make_server().endpoint(), 5) == "toy"


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
        (["a=http://h:port", "b=http://h"], "http or https"),
        (["a=http://a..b", "b=http://h"], "valid host .*a..b"),
        ([f"a=http://{'x' * 70}.com", "b=http://h"], "valid host"),
        (["a=http://h/\xfc", "b=http://h"], "path of ASCII letters"),
        (["a=http://h?x=1", "b=http://h"], "end with its path"),
    ],
)
def test_bad_endpoints_are_refused(texts: list[str], named: str) -> None:
    with pytest.raises(UserError, match=named):
        parse_endpoints(texts)


def test_a_key_in_the_address_is_refused_and_not_shown() -> None:
    with pytest.raises(UserError, match="a key goes into --api-key-env") as refused:
        parse_endpoints(["a=http://me:SECRET@h", "b=http://h"])
    assert "SECRET" not in str(refused.value)


def test_a_raw_prompt_goes_without_a_chat(make_server: MakeServer) -> None:
    server = make_server()
    reply = send(server.endpoint(), "toy", replace(REQUEST, messages=(), prompt="go on"), timeout_s=10)
    assert (reply.error, reply.text) == (None, "one two three four ")
    (body,) = server.bodies
    assert body["prompt"] == "go on"
    assert "messages" not in body


def test_a_refusal_says_why_and_never_shows_the_key(make_server: MakeServer) -> None:
    server = make_server()
    server.refuses = "hello"
    endpoint = replace(server.endpoint(), api_key="SECRET")
    reply = send(endpoint, "toy", REQUEST, timeout_s=10)
    assert (reply.error, reply.refused) == ("HTTP 400: not with Bearer ***", True)
    assert "SECRET" not in repr(endpoint)


def test_a_server_that_wants_a_key(make_server: MakeServer) -> None:
    server = make_server()
    server.key = "SECRET"
    with pytest.raises(UserError, match="does not answer: HTTP 401"):
        find_model(server.endpoint(), 5)
    endpoint = replace(server.endpoint(), api_key="SECRET")
    assert find_model(endpoint, 5) == "toy"
    assert send(endpoint, "toy", REQUEST, timeout_s=10).error is None


def test_the_model_that_was_asked_for(make_server: MakeServer) -> None:
    server = make_server()
    server.models = ["big", "small"]
    assert find_model(replace(server.endpoint(), model="small"), 5) == "small"
    with pytest.raises(UserError, match="--model-name: a has no model 'tiny'; it has big, small"):
        find_model(replace(server.endpoint(), model="tiny"), 5)


PAIR = parse_endpoints(["a=http://h:1", "b=http://h:2"])


def test_values_for_all_servers_and_for_one() -> None:
    assert [one.model for one in with_models(PAIR, [])] == [None, None]
    assert [one.model for one in with_models(PAIR, ["x=y", "b=small"])] == ["x=y", "small"]
    variables = {"OPENAI_API_KEY": "1", "OTHER": "2"}
    assert [one.api_key for one in with_keys(PAIR, [], variables)] == ["1", "1"]
    assert [one.api_key for one in with_keys(PAIR, ["b=OTHER"], variables)] == ["1", "2"]
    assert [one.api_key for one in with_keys(PAIR, [], {})] == [None, None]


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        (["x", "y"], "SERVER=VALUE for each"),
        (["b=x", "b=y"], "one value for 'b'"),
        (["b="], "one value for 'b'"),
        ([""], "SERVER=VALUE for each"),
    ],
)
def test_several_values_for_one_server_are_refused(texts: list[str], named: str) -> None:
    with pytest.raises(UserError, match=f"--model-name: .*{named}"):
        with_models(PAIR, texts)


def test_a_key_that_is_missing_or_none_is_refused() -> None:
    with pytest.raises(UserError, match="'NONE' is not set"):
        with_keys(PAIR, ["NONE"], {})
    with pytest.raises(UserError, match="is no key") as refused:
        with_keys(PAIR, ["K"], {"K": "a\nSECRET"})
    assert "SECRET" not in str(refused.value)
