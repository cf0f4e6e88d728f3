"""How far each request of a runner drafts: asks the controller, and tells it what the steps cost."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

from foredraft.integration.config import Config
from foredraft.integration.draft_lengths import adapts
from foredraft.integration.draft_members import fill_prospects, members_of, seconds_by_member
from foredraft.integration.faults import Faults
from foredraft.integration.metrics import EngineMetrics
from foredraft.integration.vllm.drafting_names import num_speculative_tokens
from foredraft.integration.vllm.ledger import Entry
from foredraft.integration.vllm.log import explain, explains
from foredraft.integration.vllm.ranked_choice import RankedChoice
from foredraft.integration.vllm.request_limit import limit_of
from foredraft.proposers import Outcome, Proposer
from foredraft.scheduler.speculation import (
    NO_LIMIT,
    AdaptiveDraftLength,
    Choice,
    DraftBatch,
    DraftLengthController,
    FixedDraftLength,
    StepReport,
)

NUM_GAPS = 15
"""Times between two steps whose median counts as the usual one."""


class LengthChoice:
    """One controller over the steps of a runner.

    vLLM drafts at the end of a step for the next one. A step of the controller so begins when lengths are
    chosen, and ends when their outcome is known. What vLLM does between drafting and the pass counts as it
    usually is: somebody who drives the engine may leave it alone for minutes.

    Where several ranks share a model and lengths are chosen step by step, the first rank chooses for all:
    each has its own clock, and what one drafts every one must know.

    Args:
        proposer: what drafts; its members are those of the configuration.
        ranks: vLLM's ``GroupCoordinator`` of those that share the model.
    """

    def __init__(
        self, config: Config, proposer: Proposer, metrics: EngineMetrics, faults: Faults, ranks: Any
    ) -> None:
        self.controller = _controller(config, proposer)
        self._ranks = RankedChoice(ranks) if adapts(config) and ranks.world_size > 1 else None
        self._decides = self._ranks is None or ranks.is_first_rank
        self._metrics, self._faults = metrics, faults
        self._propose_s: Sequence[float] = []
        self._before_pass_s = 0.0  # choosing and drafting
        self._ended = self._pass_began = time.perf_counter()
        self._gaps_s: deque[float] = deque(maxlen=NUM_GAPS)

    def pass_begins(self) -> None:
        """The target is about to run."""
        if self._ranks is not None:
            self._ranks.pass_begins()
        self._pass_began = time.perf_counter()
        self._gaps_s.append(self._pass_began - self._ended)

    def step_ends(self) -> None:
        """Everything is drafted; it is vLLM's turn."""
        self._ended = time.perf_counter()

    def choose(
        self, proposer: Proposer, entries: Mapping[str, Entry], states: Sequence[Any], rooms: Sequence[int]
    ) -> Choice:
        """What each request drafts in the next step; it is noted in its entry.

        Args:
            entries: of B requests, by their id.
            states: [B], vLLM's ``CachedRequestState``.
            rooms: [B], see ``DraftBatch``.
        """
        began = time.perf_counter()
        self._propose_s = [0.0] * len(proposer.members)
        choice = self._chosen(proposer, entries, states, rooms) if self._decides else None
        if self._ranks is not None:
            choice = self._ranks.agreed(choice)
        assert choice is not None, "who does not decide was told"
        self._before_pass_s = time.perf_counter() - began
        return _noted(choice, entries)

    def _chosen(
        self, proposer: Proposer, entries: Mapping[str, Entry], states: Sequence[Any], rooms: Sequence[int]
    ) -> Choice:
        if self.controller.skips_step():
            return Choice([0] * len(rooms))
        asked = [limit_of(state.sampling_params) for state in states]
        limits = [NO_LIMIT if limit is None else limit for limit in asked]
        batch = DraftBatch(
            request_ids=list(entries),
            rooms=rooms,
            context_lens=[len(entry.token_ids) for entry in entries.values()],
            limits=limits,
            prospects=self._prospects(proposer, entries, rooms, limits),
        )
        choice = self.controller.choose(batch)
        self._metrics.count_choice(batch, choice, self.controller.decision)
        return choice

    @contextmanager
    def drafting(self, proposer: Proposer, choice: Choice) -> Iterator[None]:
        """Around what is done only because something is drafted: it is what drafting costs."""
        started = time.perf_counter()
        yield
        spent = time.perf_counter() - started
        self._before_pass_s += spent
        self._propose_s = seconds_by_member(proposer, choice, spent)

    def observe(
        self, outcomes: Sequence[Outcome], entries: Sequence[Entry], num_scheduled: Mapping[str, int]
    ) -> None:
        """Tell the controller what came of its choice, before the next one.

        Args:
            entries: [B], of the requests with an outcome.
            num_scheduled: tokens in the pass by request, also of those that have no outcome yet.
        """
        if not self._decides:
            return
        chosen = [
            # A request that was not there, or not in this form, is reading its prompt.
            entry if entry.block_start == outcome.block_start else None
            for entry, outcome in zip(entries, outcomes, strict=True)
        ]
        num_decoded = sum(
            num_scheduled[outcome.request_id]
            for outcome, entry in zip(outcomes, chosen, strict=True)
            if entry is not None
        )
        num_tokens = sum(num_scheduled.values())
        between_s = median(self._gaps_s) if self._gaps_s else 0.0
        step_s = self._before_pass_s + between_s + time.perf_counter() - self._pass_began
        self.controller.observe(
            StepReport(
                outcomes=outcomes,
                choice=Choice(
                    [entry.asked if entry else 0 for entry in chosen],
                    [entry.member if entry else 0 for entry in chosen],
                ),
                propose_s=self._propose_s,
                target_s=step_s - sum(self._propose_s),
                step_s=step_s,
                num_tokens=num_tokens,
                num_prefill_tokens=num_tokens - num_decoded,
            )
        )

    def release(self, request_id: str) -> None:
        """Forget a request."""
        self.controller.release(request_id)

    def _prospects(
        self, proposer: Proposer, entries: Mapping[str, Entry], rooms: Sequence[int], limits: Sequence[int]
    ) -> Sequence[Sequence[int]]:
        """See ``DraftBatch``; 0 where nothing may be drafted, or the proposer failed."""
        if not self.controller.uses_prospects:
            return ()
        places = [place for place, both in enumerate(zip(rooms, limits, strict=True)) if min(both) > 0]
        prospects = [[0] * len(rooms) for _ in proposer.members]
        token_ids = [entry.token_ids for entry in entries.values()]
        with self._faults.caught("prospects"):
            fill_prospects(prospects, proposer, places, list(entries), token_ids)
        return prospects


def _noted(choice: Choice, entries: Mapping[str, Entry]) -> Choice:
    members = choice.members or [0] * len(choice.lengths)
    for entry, length, member in zip(entries.values(), choice.lengths, members, strict=True):
        entry.asked, entry.member = length, member
    return choice


def _controller(config: Config, proposer: Proposer) -> DraftLengthController:
    """Fixed or adaptive. Nothing is timed beforehand: the first steps of real traffic tell what they cost."""
    if not adapts(config):
        return FixedDraftLength(num_speculative_tokens(config))
    controller = AdaptiveDraftLength(members_of(config, proposer, {}))
    if explains():
        controller.on_change = explain
    return controller
