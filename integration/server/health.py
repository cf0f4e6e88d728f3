"""Whether an engine can generate: asked, not assumed."""

from __future__ import annotations

import asyncio
import time

from foredraft.integration.sampling_params import SamplingParams
from foredraft.integration.server.engine_loop import EngineLoop
from foredraft.integration.server.settings import ServerSettings
from foredraft.scheduler.http.errors import ApiError
from foredraft.scheduler.http.shared_look import SharedLook

ONE_TOKEN = SamplingParams(temperature=0.0, max_tokens=1)


class Health:
    """Generates a token where no request did lately."""

    def __init__(self, loop: EngineLoop, settings: ServerSettings) -> None:
        self._loop = loop
        self._settings = settings
        self._proof = SharedLook(self._prove)

    async def check(self) -> None:
        """Raises ``ApiError`` (503) if no token can be had."""
        if self._loop.failure is not None:
            raise self._loop.failure
        if time.monotonic() - self._loop.generated_at > self._settings.health_max_age_s:
            await self._proof()

    async def _prove(self) -> None:
        timeout_s = self._settings.health_timeout_s
        try:
            await asyncio.wait_for(self._one_token(), timeout_s)
        except TimeoutError:
            raise ApiError(503, f"no token came within {timeout_s:g} s", code="engine_silent") from None

    async def _one_token(self) -> None:
        submission = await self._loop.submit([[0]], ONE_TOKEN)
        try:
            while outputs := await submission.next_outputs():
                completion = outputs[-1][1].outputs[0]
                if completion.finish_reason == "error":
                    raise ApiError(503, f"cannot generate: {completion.error}", code="cannot_generate")
        finally:
            self._loop.close(submission)
