"""An answer while it is made: read from the engine, written whole or piece by piece."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Any

from foredraft.integration.engine import CompletionOutput, RequestOutput
from foredraft.integration.sampling_params import SamplingParams
from foredraft.integration.server.choices import Writer, usage_of
from foredraft.integration.server.server_metrics import ServerMetrics
from foredraft.integration.server.submission import Submission
from foredraft.scheduler.http.errors import DONE, ApiError

FORBIDDING = ("allowed_token_ids", "bad_words", "logit_bias", "min_tokens")
"""Controls that can leave no token possible."""


class Answer:
    """One answer to one client, read once."""

    def __init__(
        self, submission: Submission, params: SamplingParams, writer: Writer, metrics: ServerMetrics
    ) -> None:
        self._submission = submission
        self._params = params
        self._writer = writer
        self._metrics = metrics
        self._began = time.monotonic()
        self._last: dict[int, RequestOutput] = {}

    async def whole(self) -> dict[str, Any]:
        """All of it, once it is finished.

        Raises:
            ApiError: the engine cannot serve it.
        """
        async for _ in self._outputs():
            pass
        choices = [
            self._writer.whole(self._index(place, one), one, output.prompt_token_ids)
            for place, output in sorted(self._last.items())
            for one in output.outputs
        ]
        return self._writer.document(choices, self._usage(), piece=False)

    async def events(self, *, opening: bool, include_usage: bool) -> AsyncIterator[bytes]:
        """A stream of events; an error is one of them.

        Args:
            opening: begin each choice by saying who speaks.
        """
        usage = {"usage": None} if include_usage else {}
        try:
            if opening:
                for index in range(len(self._submission.request_ids) * self._params.n):
                    yield self._event([self._writer.opening(index)], usage)
            async for place, output in self._outputs():
                for one in output.outputs:
                    piece = self._writer.piece(self._index(place, one), one, output.prompt_token_ids)
                    if piece is not None:
                        yield self._event([piece], usage)
            if include_usage:
                yield self._event([], {"usage": self._usage()})
        except ApiError as error:
            yield error.event()
        yield DONE

    async def _outputs(self) -> AsyncIterator[tuple[int, RequestOutput]]:
        while changed := await self._submission.next_outputs():
            for place, output in changed:
                if place not in self._last and any(one.token_ids for one in output.outputs):
                    self._metrics.first_token_seconds.observe(time.monotonic() - self._began)
                self._last[place] = output
                self._check(output)
                yield place, output
        self._metrics.note_answer(time.monotonic() - self._began, self._usage())

    def _check(self, output: RequestOutput) -> None:
        for one in output.outputs:
            if one.finish_reason == "error":
                own_fault = any(name in self._params.model_fields_set for name in FORBIDDING)
                raise ApiError(400 if own_fault else 500, one.error or "the engine gave up", code="no_token")
            if one.finish_reason == "abort":
                raise ApiError(503, "the request was aborted", code="aborted")

    def _index(self, place: int, completion: CompletionOutput) -> int:
        return place * self._params.n + completion.index

    def _event(self, choices: list[dict[str, Any]], usage: dict[str, Any]) -> bytes:
        document = self._writer.document(choices, None, piece=True)
        del document["usage"]
        return b"data: " + json.dumps(document | usage).encode() + b"\n\n"

    def _usage(self) -> dict[str, int]:
        return usage_of(
            sum(len(output.prompt_token_ids) for output in self._last.values()),
            sum(len(one.token_ids) for output in self._last.values() for one in output.outputs),
        )
