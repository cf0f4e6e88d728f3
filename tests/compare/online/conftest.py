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
        fault: "" or what goes wrong: "status", "garbage", "cut", "error_event", "empty", "no_usage", "shape".
        delay_s: before each word.
        bodies: of all requests for a completion.
        in_flight: now, and ``most_in_flight`` at any time.
    """

    def __init__(self) -> None:
        self.text = "one two three four"
        self.fault = ""
        self.delay_s = 0.0
        self.metrics: str | None = None
        self.bodies: list[dict[str, Any]] = []
        self.in_flight = self.most_in_flight = 0
        self.lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.endswith("/v1/models"):
                    self._answer(json.dumps({"data": [{"id": "toy"}]}))
                elif server.metrics is not None and self.path.endswith("/metrics"):
                    self._answer(server.metrics)
                else:
                    self.send_error(404)

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                with server.lock:
                    server.bodies.append(json.loads(self.rfile.read(length)))
                    server.in_flight += 1
                    server.most_in_flight = max(server.most_in_flight, server.in_flight)
                try:
                    self._stream()
                finally:
                    with server.lock:
                        server.in_flight -= 1

            def _stream(self) -> None:
                if server.fault == "status":
                    self.send_error(500)
                    return
                self.send_response(200)
                self.end_headers()
                for number, word in enumerate(server.text.split() if server.fault != "empty" else []):
                    time.sleep(server.delay_s)
                    if number == 2 and server.fault in FAULTY_LINES:
                        self.wfile.write(FAULTY_LINES[server.fault].encode())
                    if number == 2 and server.fault == "cut":
                        return
                    self._event({"choices": [{"delta": {"content": f"{word} "}}]})
                if server.fault != "no_usage":
                    usage = {"completion_tokens": 2 * len(server.text.split())}
                    self._event({"choices": [], "usage": usage})
                self.wfile.write(b"data: [DONE]\n\n")

            def _event(self, event: dict[str, Any]) -> None:
                self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())

            def _answer(self, text: str) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def endpoint(self, name: str = "a") -> Endpoint:
        return Endpoint(name, f"http://127.0.0.1:{self.http.server_address[1]}")

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()


FAULTY_LINES = {
    "garbage": "data: {not json\n\n",
    "shape": 'data: {"choices": 7}\n\n',
    "list": "data: [1]\n\n",
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
