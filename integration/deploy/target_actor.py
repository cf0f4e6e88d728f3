"""An engine as a Ray actor, without Serve: for Python programs and tests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from foredraft.integration.config import Config
from foredraft.integration.engine import Engine, RequestOutput
from foredraft.integration.errors import UserError
from foredraft.integration.sampling_params import SamplingParams
from foredraft.integration.server.engine_loop import EngineLoop, Prompt
from foredraft.integration.server.health import ONE_TOKEN
from foredraft.integration.server.submission import Submission

TARGET_ACTOR = "foredraft.integration.deploy.target_actor:TargetActor"
"""For ``WorkerSpec.actor_class``; its argument is ``build``."""

POLL_S = 0.02


@dataclass(frozen=True)
class BuildEngine:
    """Builds the embedded engine of a configuration where it is called; itself it can be pickled."""

    config: Config

    def __call__(self) -> Engine:
        """Raises ``UserError`` if it cannot be built."""
        from foredraft.integration.embedded.build import build_engine, load_target

        return build_engine(self.config, load_target(self.config))


class TargetActor:
    """The interface of ``Engine`` for callers elsewhere; every call may run beside others.

    Errors reach the caller as Ray hands them on: a ``RayTaskError`` that is a ``UserError`` too.
    """

    def __init__(self, build: Callable[[], Engine]) -> None:
        self._loop = EngineLoop(build())
        self._loop.start()
        self._open: dict[str, Submission] = {}
        self._draining = False

    async def generate(self, prompts: Sequence[Prompt], params: SamplingParams) -> list[RequestOutput]:
        """See ``Engine.generate``; a call that is cancelled leaves nothing in the engine."""
        return await self._finish(await self._submit(prompts, params))

    async def add_request(self, request_id: str, prompt: Prompt, params: SamplingParams) -> None:
        """See ``Engine.add_request``; ``next_output`` has what comes of it."""
        if request_id in self._open:
            raise UserError(f"request_id: {request_id!r} is in use; ids must differ while a request runs")
        self._open[request_id] = await self._submit([prompt], params)

    async def next_output(self, request_id: str) -> RequestOutput | None:
        """The newest output, cumulative, as soon as there is a new one; ``None`` = the end was told before.

        Raises:
            UserError: no such request.
        """
        submission = self._open.get(request_id)
        if submission is None:
            raise UserError(f"request_id: {request_id!r} is not open")
        if outputs := await submission.next_outputs():
            return outputs[-1][1]
        self._loop.close(self._open.pop(request_id))
        return None

    async def abort(self, request_id: str) -> None:
        """See ``Engine.abort``; its outputs are gone."""
        if submission := self._open.pop(request_id, None):
            self._loop.close(submission)

    async def check(self, timeout_s: float = 10.0) -> dict[str, int]:
        """Generate a token.

        Raises:
            Exception: the engine failed, or no token came in time.
        """
        submission = await self._loop.submit([[0]], ONE_TOKEN)
        await asyncio.wait_for(self._finish(submission), timeout_s)
        return {"open_requests": self._loop.num_open}

    async def drain(self, timeout_s: float = 30.0) -> bool:
        """Take no new request and wait for the open ones; whether they ended in time."""
        self._draining = True
        ends = time.monotonic() + timeout_s
        while self._loop.num_open and time.monotonic() < ends:
            await asyncio.sleep(POLL_S)
        return self._loop.num_open == 0

    async def _submit(self, prompts: Sequence[Prompt], params: SamplingParams) -> Submission:
        if self._draining:
            raise UserError("this target is being drained and takes no new requests")
        return await self._loop.submit(prompts, params)

    async def _finish(self, submission: Submission) -> list[RequestOutput]:
        newest: dict[int, RequestOutput] = {}
        try:
            while outputs := await submission.next_outputs():
                newest |= dict(outputs)
        finally:
            self._loop.close(submission)
        return [newest[place] for place in range(len(submission.request_ids))]
