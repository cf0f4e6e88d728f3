"""The draft server: takes messages from any thread, drafts in one, and knows nothing of Ray."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass

from foredraft.proposers.remote_messages import DraftAnswer, DraftRequest, ServerCard, TargetCard
from foredraft.scheduler.draft_server.ahead import AheadDrafting
from foredraft.scheduler.draft_server.ahead_policy import AheadPolicy
from foredraft.scheduler.draft_server.answers import answer_of
from foredraft.scheduler.draft_server.counts import ServerCounts
from foredraft.scheduler.draft_server.drafting import draft_rows
from foredraft.scheduler.draft_server.health import CHECK, draft_something
from foredraft.scheduler.draft_server.held import Books, Held
from foredraft.scheduler.draft_server.hosted import HostedDraft, Rewinds
from foredraft.scheduler.draft_server.intake import Intake, take_in
from foredraft.scheduler.draft_server.options import DraftServerOptions
from foredraft.scheduler.draft_server.turns import Job, Turns

logger = logging.getLogger(__name__)

IDLE_S = 0.2
"""How often an idle server looks after leases."""


class DraftServerError(Exception):
    """The draft server could not draft; what it knew of the requests is gone."""


@dataclass
class _Target:
    """Who asks; ``answered_at`` is when a draft went out last."""

    card: TargetCard
    policy: AheadPolicy
    answered_at: float | None = None


class DraftServer:
    """Drafts for many targets with one proposer.

    ``hello``, ``submit`` and what asks after its health may be called from any thread; ``step`` or ``run``
    from one only, which does all the drafting.

    Attributes:
        incarnation: of this life.
    """

    def __init__(
        self,
        hosted: HostedDraft,
        options: DraftServerOptions | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        options = options or DraftServerOptions()
        self.incarnation = uuid.uuid4().hex
        self.counts = ServerCounts()
        self._hosted, self._clock = hosted, clock
        self._turns = Turns(options.most_waiting, options.batch_tokens, options.gather_ms / 1000, clock)
        self._ahead = AheadDrafting(hosted)
        self._books = Books(range(hosted.num_rows - 1), options.lease_s, self._let_go)
        self._targets: dict[str, _Target] = {}
        self._num_checks = 0
        self._draining = self._closed = False
        self._busy = threading.Lock()  # held while something is drafted

    # ---- from any thread

    def hello(self, card: TargetCard) -> ServerCard:
        """Whether it drafts for a target, which may ask from now on."""
        refusal = self._hosted.why_not(card)
        if refusal is None:
            can_rewind = isinstance(self._hosted.proposer, Rewinds)
            self._targets[card.target_id] = _Target(
                card, AheadPolicy(card.draft_ahead if can_rewind else "off")
            )
            self._books.seen(card.target_id, self._clock())
        return ServerCard(self.incarnation, refusal)

    def submit(self, request: DraftRequest) -> Future[DraftAnswer]:
        """Let a message wait for its turn."""
        job = Job(request, self._clock())
        not_served = job if self._draining or self._closed else self._turns.put(job)
        if not_served is not None:
            self._turn_down(not_served)
        return job.future

    def check(self, timeout_s: float = 10.0) -> None:
        """Draft something, in turn with the targets.

        Raises:
            DraftServerError: it cannot, or not in time.
        """
        self._num_checks += 1
        job = Job(DraftRequest(CHECK, self._num_checks, timeout_s, ()), self._clock())
        not_served = self._turns.put(job)
        try:
            if not_served is job:
                raise DraftServerError("too many targets are waiting for a check to be served")
            if job.future.result(timeout_s).busy:
                raise DraftServerError(f"no draft within {timeout_s:.1f} s")
        except FutureTimeoutError:
            raise DraftServerError(f"no draft within {timeout_s:.1f} s") from None

    def drain(self, timeout_s: float = 10.0) -> bool:
        """Take nothing in any more and finish what waits; whether it did in time."""
        self._draining = True
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            if not self._turns.waits() and not self._busy.locked():
                return True
            time.sleep(0.005)
        return False

    def close(self) -> None:
        """End ``run``; who waits is sent away."""
        self._closed = True
        for job in self._turns.empty():
            self._turn_down(job)

    def statistics(self) -> dict[str, float | int | None]:
        """Counts so far, and what is held now."""
        policies = [target.policy for target in self._targets.values()]
        return self.counts.as_dict() | {
            "num_targets": len(self._targets),
            "num_requests": len(self._books),
            "num_drafting_ahead": sum(policy.wants for policy in policies),
        }

    # ---- in the thread that drafts

    def run(self) -> None:
        """Work until ``close``."""
        while not self._closed:
            self.step(IDLE_S)

    def step(self, timeout_s: float = 0.0) -> bool:
        """Serve who waits; if nobody does, draft ahead.

        Args:
            timeout_s: how long to wait for somebody, if there is nothing to draft ahead.

        Returns:
            Whether something was done.
        """
        jobs = self._turns.take(0.0 if self._ahead.has_work else timeout_s)
        with self._busy:
            if jobs:
                self._serve(jobs)
            elif self._ahead.has_work:
                self._guarded(self._ahead.step, ())
            for target_id in self._books.expire(self._clock()):
                logger.info("draft server: target %s is gone, its requests are dropped", target_id)
                self.counts.num_expired += 1
                self._targets.pop(target_id, None)
                self._turns.forget(target_id)
            return bool(jobs) or self._ahead.has_work

    def _serve(self, jobs: Sequence[Job]) -> None:
        now = self._clock()
        in_time = []
        for job in jobs:
            if now - job.arrived > job.request.deadline_s:
                self.counts.num_late += 1
                self._turn_down(job)
            elif job.request.target_id == CHECK:
                self._guarded(lambda job=job: self._check(job), [job])  # type: ignore[misc]
            else:
                in_time.append(job)
        self._guarded(lambda: self._draft(in_time), in_time)

    def _draft(self, jobs: Sequence[Job]) -> None:
        served = [(job, intake) for job in jobs if (intake := self._take_in(job)) is not None]
        unready = [wish for _, intake in served for wish in intake.wishes if wish.ready is None]
        if unready:
            with self.counts.timed("seconds_drafting"):
                rows = draft_rows(
                    self._hosted, [wish.held for wish in unready], [wish.wanted for wish in unready]
                )
            self.counts.num_batches += 1
            for wish, row in zip(unready, rows, strict=True):
                wish.ready = row
        for job, intake in served:
            self._answer(job, intake)

    def _take_in(self, job: Job) -> Intake | None:
        """A message's news; ``None`` for a target that has to say hello again."""
        target = self._targets.get(job.request.target_id)
        if target is None:
            job.future.set_result(DraftAnswer(job.request.step, incarnation=""))
            return None
        self._books.seen(job.request.target_id, job.arrived)
        intake = take_in(job.request, target.card.state_dtype, self._hosted, self._books, self._ahead)
        for hit in intake.outcomes:
            target.policy.note_outcome(hit)
            self.counts.note_ahead(hit)
        return intake

    def _answer(self, job: Job, intake: Intake) -> None:
        target = self._targets[job.request.target_id]
        answer = answer_of(job.request.step, self.incarnation, intake)
        now = self._clock()
        self.counts.num_answered += 1
        self.counts.seconds_answering += now - job.arrived
        if target.answered_at is not None:
            target.policy.note_step(now - target.answered_at)
        target.answered_at = now if answer.token_ids else None
        for wish in intake.wishes:
            wish.held.block_start = len(wish.held.token_ids)
            wish.held.drafted = list(answer.token_ids.get(wish.handle, ()))
            if target.policy.wants and wish.held.drafted:
                self._ahead.add(wish.held, wish.wanted)
        job.future.set_result(answer)

    def _check(self, job: Job) -> None:
        draft_something(self._hosted, self._hosted.num_rows - 1)
        job.future.set_result(DraftAnswer(job.request.step, self.incarnation))

    def _guarded(self, work: Callable[[], None], jobs: Sequence[Job]) -> None:
        """A draft that fails costs drafts, not the server: what it knew of the requests is gone."""
        try:
            work()
        except Exception as error:
            if self.counts.num_faults == 0:
                logger.exception("draft server: drafting failed, the requests start again (logged once)")
            self.counts.num_faults += 1
            self._books.close_requests()
            for job in jobs:
                if not job.future.done():
                    job.future.set_exception(DraftServerError(f"drafting failed: {error}"))

    def _turn_down(self, job: Job) -> None:
        self.counts.num_busy += 1
        job.future.set_result(DraftAnswer(job.request.step, self.incarnation, busy=True))

    def _let_go(self, held: Held) -> None:
        self._ahead.forget(held)
        self._hosted.proposer.release(held.request_id, "finished")
