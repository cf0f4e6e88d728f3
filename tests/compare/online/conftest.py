"""A small OpenAI-compatible server that can also misbehave."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from foredraft.integration.compare.online.endpoint import Endpoint


class FakeServer:
    """Streams ``text`` word by word.

    Attributes:
        models: what it lists.
        key: without it nothing is answered, where it is set.
        refuses: it takes no request that holds this text.
        dies_after: requests; then it answers 500.
        drafts: whether its metrics count 4 drafted tokens a request, of which 3 are accepted.
        fault: "" or what goes wrong: "status", "garbage", "cut", "error_event", "empty", "no_usage", "shape",
            "escape", "dribble" (pages come letter by letter), "short" (pages end before they should).
        usage: the number of tokens that it tells; ``None`` = two a word, no more than were asked for.
        delay_s: before each word.
        bodies: of all requests for a completion.
        in_flight: now, and ``most_in_flight`` at any time.
    """

    def __init__(self) -> None:
        self.text = "one two three four"
        self.fault = ""
        self.usage: Any = None
        self.delay_s = 0.0
        self.models = ["toy"]
        self.key = self.refuses = ""
        self.dies_after = 10**9
        self.drafts = False
        self.metrics: str | None = None
        self.bodies: list[dict[str, Any]] = []
        self.in_flight = self.most_in_flight = 0
        self.lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self._lacks_key():
                    self.send_error(401)
                elif self.path.endswith("/v1/models"):
                    self._answer(json.dumps({"data": [{"id": name} for name in server.models]}))
                elif server.drafts and self.path.endswith("/metrics"):
                    self._answer(drafting_page(len(server.bodies)))
                elif server.metrics is not None and self.path.endswith("/metrics"):
                    self._answer(server.metrics)
                else:
                    self.send_error(404)

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with server.lock:
                    server.bodies.append(body)
                    server.in_flight += 1
                    server.most_in_flight = max(server.most_in_flight, server.in_flight)
                try:
                    self._stream(body)
                finally:
                    with server.lock:
                        server.in_flight -= 1

            def _stream(self, body: dict[str, Any]) -> None:
                if server.fault == "status" or len(server.bodies) > server.dies_after:
                    self.send_error(500)
                    return
                if self._lacks_key() or (server.refuses and server.refuses in json.dumps(body)):
                    message = f"not with {self.headers['Authorization']}"
                    self._answer(json.dumps({"error": {"message": message}}), 400)
                    return
                self.send_response(200)
                self.end_headers()
                for number, word in enumerate(server.text.split() if server.fault != "empty" else []):
                    time.sleep(server.delay_s)
                    if number == 2 and server.fault in FAULTY_LINES:
                        self.wfile.write(FAULTY_LINES[server.fault].encode())
                    if number == 2 and server.fault == "cut":
                        return
                    piece = {"delta": {"content": f"{word} "}} if "messages" in body else {"text": f"{word} "}
                    self._event({"choices": [piece]})
                if server.fault != "no_usage":
                    count = min(2 * len(server.text.split()), body["max_tokens"])
                    usage = count if server.usage is None else server.usage
                    self._event({"choices": [], "usage": {"completion_tokens": usage}})
                self.wfile.write(b"data: [DONE]\n\n")

            def _event(self, event: dict[str, Any]) -> None:
                self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())

            def _lacks_key(self) -> bool:
                return bool(server.key) and self.headers["Authorization"] != f"Bearer {server.key}"

            def _answer(self, text: str, status: int = 200) -> None:
                self.send_response(status)
                if server.fault == "short":
                    self.send_header("Content-Length", str(len(text) + 1))
                self.end_headers()
                while server.fault == "dribble":
                    self.wfile.write(b" ")
                    time.sleep(0.05)
                self.wfile.write(text.encode())

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.http.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that hung up
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def endpoint(self, name: str = "a") -> Endpoint:
        return Endpoint(name, f"http://127.0.0.1:{self.http.server_address[1]}")

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()


def drafting_page(num_requests: int) -> str:
    """vLLM's counters after so many requests: two drafts of two tokens each, 2 + 1 accepted by place."""
    counts = {"drafts": 2, "draft_tokens": 4, "accepted_tokens": 3}
    lines = [
        f'vllm:spec_decode_num_{name}_total{{engine="0"}} {count * num_requests}'
        for name, count in counts.items()
    ]
    for place, count in enumerate((2, 1)):
        name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
        lines.append(f'{name}{{engine="0",position="{place}"}} {count * num_requests}')
    return "\n".join(lines)


FAULTY_LINES = {
    "garbage": "data: {not json\n\n",
    "shape": 'data: {"choices": 7}\n\n',
    "list": "data: [1]\n\n",
    "escape": 'data: {"error": "\\u001b[31mred\\u0007"}\n\n',
    "error_event": 'data: {"error": "out of memory"}\n\n',
}


@pytest.fixture
def make_server() -> Iterator[Callable[[], FakeServer]]:
    servers: list[FakeServer] = []

    def make() -> FakeServer:
        servers.append(FakeServer())
        return servers[-1]

    yield make
    for server in servers:
        server.close()
