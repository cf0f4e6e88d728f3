"""Our own server over toy engines: without a socket, or as a real one on a free port."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx
import uvicorn
from letters import TOKENIZER, letter_decoder, text_decoder
from toys import byte_tokenizer, make_engine
from vllm_server import free_port

from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.engine import Engine
from foredraft.integration.server.app import create_app
from foredraft.integration.server.settings import ServerSettings
from foredraft.proposers.ngram import NgramProposer

SETTINGS = ServerSettings(model_names=("toy",), proposer="ngram")
CHAT_TEMPLATE = "{% for m in messages %}{{ m['role'] }}:{{ m['content'] }};{% endfor %}"


def letters_engine(num_rows: int = 4, **options: Any) -> EmbeddedEngine:
    """Writes letters, drafted from what it wrote before."""
    given: dict[str, Any] = {"tokenizer": byte_tokenizer(CHAT_TEMPLATE)} | options
    return make_engine(letter_decoder(num_rows), NgramProposer(1, 3), **given)


def text_engine() -> EmbeddedEngine:
    """Writes a known text whose letters are split across tokens."""
    return make_engine(text_decoder(), NgramProposer(1, 3), tokenizer=TOKENIZER)


@asynccontextmanager
async def client_of(engine: Engine, settings: ServerSettings = SETTINGS) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an app that runs in this event loop."""
    app = create_app(engine, settings)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://toy", timeout=60) as client:
            yield client


@contextmanager
def real_server(engine: Engine, settings: ServerSettings = SETTINGS) -> Iterator[str]:
    """The address of a server with a real socket, in a thread."""
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(create_app(engine, settings), port=port, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            time.sleep(0.01)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(30)


def events(text: str) -> list[dict[str, Any]]:
    """The events of a stream, which must end as streams do."""
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def joined(pieces: Sequence[dict[str, Any]], index: int = 0) -> str:
    """The text of a choice, put together from the events of a stream."""
    choices = [one for piece in pieces for one in piece["choices"] if one["index"] == index]
    return "".join(one["text"] if "text" in one else one["delta"].get("content", "") for one in choices)
