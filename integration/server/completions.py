"""The two routes that generate."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import Request
from starlette.responses import JSONResponse, Response

from foredraft.integration.chat import chat_prompt_ids
from foredraft.integration.engine import Engine
from foredraft.integration.errors import UserError
from foredraft.integration.server.answers import Answer
from foredraft.integration.server.bodies import RequestBody, chat_body, completion_body
from foredraft.integration.server.choices import Writer
from foredraft.integration.server.engine_loop import EngineLoop, Prompt
from foredraft.integration.server.server_metrics import ServerMetrics
from foredraft.integration.server.settings import ServerSettings
from foredraft.integration.server.submission import Submission
from foredraft.integration.server.token_texts import TokenTexts
from foredraft.scheduler.http.disconnect import ClientGoneError, unless_gone
from foredraft.scheduler.http.errors import ApiError
from foredraft.scheduler.http.streams import ClosingStream

CLIENT_GONE = 499


class Completions:
    """Answers requests with the engine."""

    def __init__(
        self, engine: Engine, loop: EngineLoop, settings: ServerSettings, metrics: ServerMetrics
    ) -> None:
        self._room = engine.max_model_len
        self._loop = loop
        self._settings = settings
        self._metrics = metrics
        self._texts = TokenTexts(engine.tokenizer)

    async def complete(self, request: Request) -> Response:
        """``POST /v1/completions``."""
        body = completion_body(await request.body(), self._settings.sampling)
        return await self._answer(request, body, body.prompt, chat=False)

    async def chat(self, request: Request) -> Response:
        """``POST /v1/chat/completions``."""
        body = chat_body(await request.body(), self._settings.sampling, self._room)
        prompt = await self._loop.run(lambda engine: _chat_prompt(engine, body.messages))
        try:
            return await self._answer(request, body, [prompt], chat=True)
        except UserError as error:
            # The engine knows only prompts.
            raise UserError("messages:" + str(error).removeprefix("prompt:")) from None

    async def _answer(
        self, request: Request, body: RequestBody, prompts: Sequence[Prompt], *, chat: bool
    ) -> Response:
        model = self._model(body.model)
        self._check_room(len(prompts))
        params = body.sampling_params()
        submission = await self._loop.submit(prompts, params)
        writer = Writer(model, chat, params, body.return_token_ids, self._texts)
        answer = Answer(submission, params, writer, self._metrics)
        if body.stream:
            events = answer.events(opening=chat, include_usage=body.stream_options.include_usage)
            return ClosingStream(events, lambda: self._loop.close(submission))
        return await self._whole(request, answer, submission)

    async def _whole(self, request: Request, answer: Answer, submission: Submission) -> Response:
        try:
            return JSONResponse(await unless_gone(request.receive, answer.whole()))
        except ClientGoneError:
            return Response(status_code=CLIENT_GONE)
        finally:
            self._loop.close(submission)

    def _model(self, named: str | None) -> str:
        names = self._settings.model_names
        if named is not None and named not in names:
            text = f"model: there is no {named[:200]!r} here; there is {', '.join(names)}"
            raise ApiError(404, text, param="model", code="model_not_found")
        return named or names[0]

    def _check_room(self, num_prompts: int) -> None:
        limit = self._settings.max_open_requests
        if num_prompts > limit:
            text = f"prompt: {num_prompts} prompts at once; {limit} may be open"
            raise ApiError(400, text, param="prompt", code="too_many_prompts")
        if self._loop.num_open + num_prompts > limit:
            text = f"too many requests: {self._loop.num_open} of {limit} are open; try again soon"
            raise ApiError(429, text, code="queue_full", headers={"Retry-After": "1"})


def _chat_prompt(engine: Engine, messages: Sequence[dict[str, str]]) -> list[int]:
    if engine.tokenizer is None:
        raise UserError("messages: this model has no tokenizer; use /v1/completions with token ids")
    return chat_prompt_ids(engine.tokenizer, messages)
