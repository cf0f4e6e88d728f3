"""Replicas for tests of serving on Ray: our server over small engines, which can be told to misbehave.

``alphabet_replica`` needs no torch, so its replicas start quickly.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from foredraft.integration.engine import CompletionOutput, Engine, RequestOutput
from foredraft.integration.metrics import EngineMetrics
from foredraft.integration.sampling_params import SamplingParams
from foredraft.scheduler.http.asgi import AsgiApp

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class AlphabetEngine(Engine):
    """Goes on with the alphabet after a prompt of letters, a token per letter and step."""

    tokenizer = None
    max_model_len = 1024
    num_draft_tokens = 0

    def __init__(self) -> None:
        self.metrics = EngineMetrics()
        self._open: dict[str, tuple[RequestOutput, SamplingParams]] = {}

    def add_request(self, request_id: str, prompt: str | Sequence[int], params: SamplingParams) -> None:
        ids = [ord(letter) for letter in prompt] if isinstance(prompt, str) else list(prompt)
        output = RequestOutput(request_id, ids, [CompletionOutput(0, "", [])], finished=False)
        self._open[request_id] = output, params

    def abort(self, request_id: str) -> None:
        self._open.pop(request_id, None)

    def has_unfinished_requests(self) -> bool:
        return bool(self._open)

    def step(self) -> list[RequestOutput]:
        return [self._grown(output, params) for output, params in list(self._open.values())]

    def _grown(self, output: RequestOutput, params: SamplingParams) -> RequestOutput:
        before = output.outputs[0]
        text = continued(output.prompt_token_ids, len(before.token_ids) + 1)
        finished = len(text) == params.max_tokens
        reason = "length" if finished else None
        completion = CompletionOutput(0, text, [ord(letter) for letter in text], reason)
        grown = RequestOutput(output.request_id, output.prompt_token_ids, [completion], finished)
        self._open[output.request_id] = grown, params
        if finished:
            del self._open[output.request_id]
        return grown


def continued(prompt_ids: Sequence[int], count: int) -> str:
    """What the alphabet engine writes."""
    start = prompt_ids[-1] - ord("a") + 1
    return "".join(LETTERS[(start + place) % len(LETTERS)] for place in range(count))


def letters_engine() -> Engine:
    """The embedded engine over a target that writes letters, drafted with ngram."""
    import openai_server

    return openai_server.letters_engine(num_rows=8)


@dataclass(frozen=True)
class ToyReplica:
    """Builds our server over an engine that can be slowed down and broken.

    Attributes:
        folder: where replicas say their process ids; a file ``NAME.broken`` in it makes them fail.
        step_s: how long each step of the engine takes at least.
    """

    name: str
    folder: str
    engine: Callable[[], Engine] = AlphabetEngine
    step_s: float = 0.0

    def __call__(self) -> AsgiApp:
        from foredraft.integration.server.app import create_app
        from foredraft.integration.server.settings import ServerSettings

        Path(self.folder, f"{self.name}-{os.getpid()}.pid").write_text(str(os.getpid()))
        engine = self.engine()
        good_step, broken = engine.step, Path(self.folder, f"{self.name}.broken")

        def step() -> list[RequestOutput]:
            time.sleep(self.step_s)
            outputs = good_step()
            if broken.exists():
                for output in outputs:
                    for one in output.outputs:
                        one.finish_reason = one.finish_reason and "error"
            return outputs

        engine.step = step  # type: ignore[method-assign]
        settings = ServerSettings(("toy",), proposer="ngram", health_max_age_s=0.5, health_timeout_s=5)
        return create_app(engine, settings)


def process_ids(folder: Path, name: str) -> Sequence[int]:
    """Of the replicas of a variant that were started, the newest last."""
    files = sorted(folder.glob(f"{name}-*.pid"), key=lambda file: file.stat().st_mtime)
    return [int(file.read_text()) for file in files]
