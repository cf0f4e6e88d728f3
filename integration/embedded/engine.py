"""The embedded engine: continuous batching around one readable draft-verify-accept step."""

from __future__ import annotations

import heapq
import logging
import time
from collections import deque
from collections.abc import Sequence as List
from typing import Any, Literal

from torch import Tensor

from foredraft.integration.draft_check import checked_draft
from foredraft.integration.draft_members import fill_prospects, seconds_by_member
from foredraft.integration.embedded.admission import bad_word_ids, check_params, checked_prompt, ending
from foredraft.integration.embedded.batch import (
    ScheduledRow,
    pass_tokens,
    sampled_positions,
    sampling_batch,
)
from foredraft.integration.embedded.committing import commit, note_prompt_logprobs
from foredraft.integration.embedded.detokenizer import Detokenizer
from foredraft.integration.embedded.sequence import Request, Sequence
from foredraft.integration.engine import Engine, RequestOutput
from foredraft.integration.errors import UserError
from foredraft.integration.faults import Faults
from foredraft.integration.metrics import EngineMetrics
from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers.base import DraftContext, Outcome, Proposer, ReleaseReason
from foredraft.proposers.decoder import Decoder
from foredraft.scheduler.speculation.contract import (
    NO_LIMIT,
    Choice,
    DraftBatch,
    DraftLengthController,
    StepReport,
)
from foredraft.verifier import Draft, SamplingBatch, request_key, verify

logger = logging.getLogger(__name__)


class EmbeddedEngine(Engine):
    """Serves requests over one decoder. A request that finds no free cache row waits its turn.

    Args:
        decoder: the target; its rows are the most sequences that run at once.
        proposer: what drafts; ``None`` = plain decoding.
        controller: how many tokens each request may draft.
        tokenizer: for text prompts and output; ``None`` = token ids only.
        eos_ids: tokens that end a sequence.
        prefill_chunk: prompt tokens read per step at most.
    """

    def __init__(
        self,
        decoder: Decoder,
        proposer: Proposer | None,
        controller: DraftLengthController,
        *,
        tokenizer: Any | None = None,
        eos_ids: frozenset[int] = frozenset(),
        rule: Literal["block", "token"] = "block",
        prefill_chunk: int = 256,
        seed: int = 0,
    ) -> None:
        self.decoder = decoder
        self.proposer = proposer
        self.controller = controller
        self.tokenizer = tokenizer
        self.max_model_len = min(decoder.capacity, decoder.max_len)
        self.metrics = EngineMetrics()
        # A tokenizer may know tokens the model does not; forbidding one would be out of range.
        self._eos_ids = frozenset(token for token in eos_ids if token < decoder.vocab_size)
        self._rule = rule
        self._prefill_chunk = prefill_chunk
        self._seed = seed
        self._num_requests_seen = 0
        self._requests: dict[str, Request] = {}
        self._owners: dict[str, Request] = {}  # sequence id -> its request, while it is waiting or running
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self._free_rows = list(range(decoder.num_rows))
        self._changed: dict[str, Request] = {}
        self._faults = Faults(self.metrics, logger)

    @property
    def num_draft_tokens(self) -> int:
        """Tokens drafted per request and step at most."""
        return self.controller.max_draft_tokens if self.proposer is not None else 0

    # ---- requests in and out

    def add_request(self, request_id: str, prompt: str | List[int], params: SamplingParams) -> None:
        """See ``Engine.add_request``."""
        if not isinstance(request_id, str):
            raise UserError(f"request_id: needs a text, got {request_id!r}")
        if not isinstance(params, SamplingParams):
            raise UserError(f"params: needs SamplingParams, got {params!r}")
        if request_id in self._requests:
            raise UserError(f"request_id: {request_id!r} is in use; ids must differ while a request runs")
        vocab_size = self.decoder.vocab_size
        prompt_ids = checked_prompt(prompt, self.tokenizer, vocab_size, self.max_model_len)
        check_params(params, self.tokenizer, vocab_size)
        request = Request(request_id, prompt_ids, params)
        if params.prompt_logprobs is not None:
            request.prompt_logprobs = [None]
        for index in range(params.n):
            request.sequences.append(self._sequence(request, index))
        self._num_requests_seen += 1
        self._requests[request_id] = request
        self._owners |= {sequence.sequence_id: request for sequence in request.sequences}
        self._waiting += request.sequences

    def _sequence(self, request: Request, index: int) -> Sequence:
        params = request.params
        sequence_id = f"{request.request_id}#{index}"
        return Sequence(
            sequence_id,
            index,
            request.prompt_ids,
            params,
            ending(params, self._eos_ids, len(request.prompt_ids), self.max_model_len),
            # Unseeded, an id used again must not repeat its tokens: the arrival number is part of the name.
            request_key(
                None if params.seed is None else params.seed + index,
                self._seed,
                f"{self._num_requests_seen}:{sequence_id}",
            ),
            bad_words=bad_word_ids(params, self.tokenizer, self.decoder.vocab_size),
            detokenizer=Detokenizer(self.tokenizer, params.skip_special_tokens) if self.tokenizer else None,
        )

    def abort(self, request_id: str) -> None:
        """See ``Engine.abort``; the next ``step`` returns its last output, finish reason ``abort``."""
        request = self._requests.get(request_id)
        for sequence in request.sequences if request else ():
            if not sequence.finished:
                sequence.finish("abort")
                self._retire(sequence, "aborted")

    def has_unfinished_requests(self) -> bool:
        """See ``Engine.has_unfinished_requests``."""
        return bool(self._requests)

    # ---- one step

    def step(self) -> list[RequestOutput]:
        """See ``Engine.step``."""
        with self.metrics.timed("total"):
            self._admit()
            rows = self._schedule()
            if rows:
                self._advance(rows)
            return self._collect()

    def _advance(self, rows: list[ScheduledRow]) -> None:
        """Draft, verify, accept: one target pass over every scheduled row and its draft."""
        started = time.perf_counter()
        before = dict(self.metrics.seconds)
        sampled = [row for row in rows if row.samples]
        sampling = sampling_batch([row.sequence for row in sampled], self.decoder.device)
        choice = self._choose(rows, sampled)
        with self.metrics.timed("propose"):
            draft, drafted = self._propose(sampled, choice, sampling)
        with self.metrics.timed("forward"):
            logits = self._target_pass(rows, sampled, drafted)
        if not sampled:
            return
        with self.metrics.timed("sample"):
            verdict = verify(logits, draft, sampling, self._rule)
            token_ids, num_accepted = verdict.token_ids.tolist(), verdict.num_accepted.tolist()
        outcomes = commit(sampled, drafted, token_ids, num_accepted, logits)
        self._changed |= {outcome.request_id: self._owners[outcome.request_id] for outcome in outcomes}
        self._roll_back(sampled)
        self.metrics.count(outcomes)
        if self.proposer is not None:
            with self._faults.caught("observe"):
                self.proposer.observe(outcomes)
        spent = {phase: self.metrics.seconds[phase] - seconds for phase, seconds in before.items()}
        self.controller.observe(
            StepReport(
                outcomes=outcomes,
                choice=_choice_for(outcomes, sampled, choice),
                propose_s=seconds_by_member(self.proposer, choice, spent["propose"]),
                target_s=spent["forward"] + spent["sample"],
                step_s=time.perf_counter() - started,
                num_tokens=sum(row.num_new for row in rows) + sum(map(len, drafted)),
                num_prefill_tokens=_num_prefill_tokens(rows),
            )
        )
        self._retire_finished(sampled)

    def _admit(self) -> None:
        while self._waiting and self._free_rows:
            sequence = self._waiting.popleft()
            # The lowest free row: running rows stay adjacent, which attention rewards.
            sequence.row = heapq.heappop(self._free_rows)
            self.decoder.truncate(sequence.row, 0)
            self._running.append(sequence)

    def _schedule(self) -> list[ScheduledRow]:
        """Every decoding sequence, and whole prefill chunks while they fit.

        A chunk is never cut to the room left in the step: where it ends depends on the prompt alone, so that
        a request is computed the same way in every batch.
        """
        rows = []
        budget = self._prefill_chunk
        for sequence in self._running:
            assert sequence.row is not None, "a running sequence owns a cache row"
            start = self.decoder.valid_len(sequence.row)
            pending = len(sequence.token_ids) - start
            num_new = min(pending, self._prefill_chunk)
            if pending > 1:
                if num_new > budget:
                    budget = 0  # who came first goes first
                    continue
                budget -= num_new
            rows.append(ScheduledRow(sequence, sequence.row, start, num_new, samples=num_new == pending))
        return rows

    def _choose(self, rows: list[ScheduledRow], sampled: list[ScheduledRow]) -> Choice:
        """How many tokens each sampling row may draft, and with what."""
        if self.proposer is None or not sampled or self.controller.skips_step():
            return Choice([0] * len(sampled))
        limits = [row.sequence.params.num_draft_tokens for row in sampled]
        rooms = [row.sequence.room - 1 if row.decodes else 0 for row in sampled]
        batch = DraftBatch(
            request_ids=[row.sequence.sequence_id for row in sampled],
            rooms=rooms,
            context_lens=[len(row.sequence.token_ids) for row in sampled],
            limits=[NO_LIMIT if limit is None else limit for limit in limits],
            prospects=self._prospects(sampled, rooms) if self.controller.uses_prospects else (),
            num_prefill_tokens=_num_prefill_tokens(rows),
        )
        choice = self.controller.choose(batch)
        self.metrics.count_choice(batch, choice, self.controller.decision)
        return choice

    def _prospects(self, rows: list[ScheduledRow], rooms: list[int]) -> list[list[int]]:
        """What each member of the proposer says of the rows that may draft; 0 for the others."""
        assert self.proposer is not None, "asked only with one"
        open_rows = [
            place
            for place, (row, room) in enumerate(zip(rows, rooms, strict=True))
            if room > 0 and row.sequence.params.num_draft_tokens != 0
        ]
        request_ids = [row.sequence.sequence_id for row in rows]
        token_ids = [row.sequence.token_ids for row in rows]
        prospects = [[0] * len(rows) for _ in self.proposer.members]
        with self._faults.caught("prospects"):
            fill_prospects(prospects, self.proposer, open_rows, request_ids, token_ids)
        return prospects

    def _propose(
        self, rows: list[ScheduledRow], choice: Choice, sampling: SamplingBatch
    ) -> tuple[Draft, list[list[int]]]:
        """The draft of every sampling row; empty where it may not draft or the proposer failed."""
        if self.proposer is not None and any(choice.lengths):
            context = DraftContext(
                request_ids=[row.sequence.sequence_id for row in rows],
                token_ids=[row.sequence.token_ids for row in rows],
                max_draft_tokens=choice.lengths,
                sampling=sampling,
                cache_rows=[row.row for row in rows],
                hidden_states=self.decoder.hidden_states,
                members=choice.members,
            )
            with self._faults.caught("propose"):
                draft = self.proposer.propose(context)
                return draft, checked_draft(draft, choice.lengths, self.decoder.vocab_size)
        return Draft.none(len(rows), self.decoder.device), [[] for _ in rows]

    def _target_pass(
        self, rows: list[ScheduledRow], sampled: list[ScheduledRow], drafted: list[list[int]]
    ) -> Tensor:
        """Run the target and return the logits to verify, [sum of drafted + 1, V]."""
        draft_of = {row.row: draft for row, draft in zip(sampled, drafted, strict=True)}
        drafts = [draft_of.get(row.row, []) for row in rows]
        hidden = self.decoder.forward(pass_tokens(rows, drafts, self.decoder.device))
        note_prompt_logprobs(rows, drafts, hidden, self.decoder.head, self._owners)
        return self.decoder.head(hidden[sampled_positions(rows, drafts)])

    def _roll_back(self, rows: list[ScheduledRow]) -> None:
        """Cut the cache back to the committed tokens; the newest one is still to be read."""
        for row in rows:
            if not row.sequence.finished:
                self.decoder.truncate(row.row, len(row.sequence.token_ids) - 1)

    def _retire_finished(self, rows: list[ScheduledRow]) -> None:
        """Retire what this step ended: after ``observe``, so that the proposer still knows the requests."""
        for row in rows:
            if row.sequence.finished and row.sequence.row is not None:
                self._retire(row.sequence, "finished")
            elif row.sequence.finished:
                # Aborted while the proposer was at work: it may have taken the request up again.
                self._release(row.sequence, "aborted")

    def _retire(self, sequence: Sequence, reason: ReleaseReason) -> None:
        """Give back everything a finished sequence holds."""
        if sequence.row is None:
            self._waiting.remove(sequence)
        else:
            self._running.remove(sequence)
            heapq.heappush(self._free_rows, sequence.row)
            sequence.row = None
        self._changed[sequence.sequence_id] = self._owners.pop(sequence.sequence_id)
        self._release(sequence, reason)

    def _release(self, sequence: Sequence, reason: ReleaseReason) -> None:
        self.controller.release(sequence.sequence_id)
        if self.proposer is not None:
            with self._faults.caught("release"):
                self.proposer.release(sequence.sequence_id, reason)

    def _collect(self) -> list[RequestOutput]:
        changed = {request.request_id: request for request in self._changed.values()}
        self._changed.clear()
        outputs = [request.as_output() for request in changed.values()]
        for output in outputs:
            if output.finished:
                del self._requests[output.request_id]
        return outputs


def _num_prefill_tokens(rows: list[ScheduledRow]) -> int:
    return sum(row.num_new for row in rows if not row.decodes)


def _choice_for(outcomes: List[Outcome], rows: list[ScheduledRow], choice: Choice) -> Choice:
    """What the requests with an outcome were given: all, but for those aborted meanwhile."""
    if len(outcomes) == len(rows):
        return choice
    place_of = {row.sequence.sequence_id: place for place, row in enumerate(rows)}
    places = [place_of[outcome.request_id] for outcome in outcomes]
    members = [choice.members[place] for place in places] if choice.members else []
    return Choice([choice.lengths[place] for place in places], members)
