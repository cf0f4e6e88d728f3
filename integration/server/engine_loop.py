"""An engine that runs in a thread of its own, for callers in an event loop."""

from __future__ import annotations

import asyncio
import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from foredraft.integration.engine import Engine, RequestOutput
from foredraft.integration.sampling_params import SamplingParams
from foredraft.integration.server.submission import Submission
from foredraft.scheduler.http.errors import ApiError

logger = logging.getLogger(__name__)
T = TypeVar("T")
Prompt = str | Sequence[int]
Job = tuple[Callable[[Engine], Any], "Future[Any]"]

STOP_TIMEOUT_S = 30.0


class EngineLoop:
    """Steps the engine while it has work. Everything that touches the engine happens in its thread.

    Attributes:
        generated_at: when a token last came, in seconds of ``time.monotonic``.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._submissions: dict[str, Submission] = {}  # request id -> who waits for it; the thread's own
        self._ids = itertools.count()
        self._failure: ApiError | None = None
        self._lock = threading.Lock()  # a job is queued before the failure, which answers it, or refused
        self._thread = threading.Thread(target=self._run, name="foredraft-engine", daemon=True)
        self.generated_at = float("-inf")
        self.num_open = 0

    @property
    def failure(self) -> ApiError | None:
        """Why nothing can be asked any more."""
        return self._failure

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    async def stop(self) -> None:
        """End what is still open with an error, and the thread."""
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join, STOP_TIMEOUT_S)

    async def run(self, job: Callable[[Engine], T]) -> T:
        """What ``job`` returns or raises, called between two steps.

        Raises:
            ApiError: the engine has failed.
        """
        future: Future[T] = Future()
        with self._lock:
            if self._failure is not None:
                raise self._failure
            self._jobs.put((job, future))
        return await asyncio.wrap_future(future)

    async def submit(self, prompts: Sequence[Prompt], params: SamplingParams) -> Submission:
        """Queue prompts; give the result to ``close`` in the end.

        Raises:
            UserError: one of them can never be served; then none is.
            ApiError: the engine has failed.
        """
        submission = Submission([f"request-{next(self._ids)}" for _ in prompts])
        self.num_open += len(prompts)
        try:
            await self.run(lambda engine: self._add(engine, submission, prompts, params))
        except BaseException:
            self.close(submission)
            raise
        return submission

    def close(self, submission: Submission) -> None:
        """Abort what is not finished; nobody waits for it any more."""
        self.num_open -= len(submission.request_ids)
        if submission.unfinished_ids:
            ids = submission.request_ids
            with self._lock:
                if self._failure is None:
                    self._jobs.put((lambda engine: self._abort(engine, ids), Future()))

    def _add(
        self, engine: Engine, submission: Submission, prompts: Sequence[Prompt], params: SamplingParams
    ) -> None:
        for request_id, prompt in zip(submission.request_ids, prompts, strict=True):
            try:
                engine.add_request(request_id, prompt, params)
            except BaseException:
                self._abort(engine, submission.request_ids)
                raise
            self._submissions[request_id] = submission

    def _abort(self, engine: Engine, request_ids: Sequence[str]) -> None:
        for request_id in request_ids:
            if self._submissions.pop(request_id, None) is not None:
                engine.abort(request_id)

    def _run(self) -> None:
        try:
            while self._do_jobs():
                if self._engine.has_unfinished_requests():
                    self._deliver(self._engine.step())
            self._end(ApiError(503, "the server is shutting down", code="shutting_down"))
        except BaseException as error:
            logger.exception("the engine failed; no request can be served any more")
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            self._end(ApiError(503, f"the engine failed: {reason}", code="engine_failed"))

    def _do_jobs(self) -> bool:
        """All that wait, or the next one where there is nothing else to do; whether to go on."""
        while True:
            try:
                job = self._jobs.get(block=not self._engine.has_unfinished_requests())
            except queue.Empty:
                return True
            if job is None:
                return False
            _do(job, self._engine)

    def _deliver(self, outputs: Sequence[RequestOutput]) -> None:
        for output in outputs:
            first = output.outputs[0]
            if first.token_ids and first.finish_reason not in ("abort", "error"):
                self.generated_at = time.monotonic()
            submission = self._submissions.get(output.request_id)
            if submission is not None:
                submission.deliver(output)
            if output.finished:
                self._submissions.pop(output.request_id, None)

    def _end(self, failure: ApiError) -> None:
        with self._lock:
            self._failure = failure
        for submission in set(self._submissions.values()):
            submission.deliver_failure(failure)
        self._submissions.clear()
        while not self._jobs.empty():
            job = self._jobs.get()
            if job is not None and job[1].set_running_or_notify_cancel():
                job[1].set_exception(failure)


def _do(job: Job, engine: Engine) -> None:
    work, future = job
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work(engine)
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
