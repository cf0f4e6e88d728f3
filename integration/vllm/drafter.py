"""What vLLM builds in each worker as its ``custom_class`` proposer: ours, with our verifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch

from foredraft.integration.draft_check import checked_draft
from foredraft.integration.faults import Faults
from foredraft.integration.metrics import EngineMetrics
from foredraft.integration.vllm import options
from foredraft.integration.vllm.backings import backing_of
from foredraft.integration.vllm.draft_store import DraftStore
from foredraft.integration.vllm.drafting_names import drafting_names
from foredraft.integration.vllm.ledger import Entry, Ledger, room
from foredraft.integration.vllm.length_choice import LengthChoice
from foredraft.integration.vllm.log import logger
from foredraft.integration.vllm.metrics_export import MetricsExport
from foredraft.integration.vllm.paged.step import Step
from foredraft.integration.vllm.runner_hooks import RUNNER_HOOKS
from foredraft.integration.vllm.sampler import sample, scheduled_draft
from foredraft.integration.vllm.sampling import BatchSampling
from foredraft.proposers import DraftContext, Proposer, ReleaseReason
from foredraft.proposers.drafting import select_sampling
from foredraft.scheduler.speculation import Choice
from foredraft.verifier import Draft, SamplingBatch


class Drafter:
    """Drafts and decides for one runner. The hooks of ``runner_hooks`` call it.

    Attributes:
        is_foredraft: by which the hooks know a runner that is ours.
    """

    is_foredraft = True

    def __init__(self, vllm_config: Any) -> None:
        config = options.asked_for(vllm_config.additional_config)
        assert config is not None, "vLLM builds the drafter only where the configuration asks for it"
        RUNNER_HOOKS.apply()
        self.metrics = EngineMetrics(member_names=drafting_names(config))
        # All ranks count the same; more than one would count it several times.
        self._export = (
            MetricsExport(vllm_config.model_config.served_model_name, config.proposer)
            if vllm_config.parallel_config.rank == 0
            else None
        )
        if self._export is not None:
            self._export.write(self.metrics)  # zeros: a page without them would look broken
        self.backing = backing_of(config, vllm_config)
        self._config = config
        self._rule = config.verification_rule
        self._seed = vllm_config.model_config.seed or 0
        self._vocab_size = vllm_config.model_config.get_vocab_size()
        self._ledger = Ledger()
        self._laws = DraftStore()
        self._sampling: BatchSampling | None = None
        self._sampled_with: SamplingBatch | None = None
        self._num_verified: list[int] = []
        self._faults = Faults(self.metrics, logger)

    @property
    def proposer(self) -> Proposer:
        """What drafts, once the model is loaded."""
        assert self.backing.proposer is not None, "vLLM loads its model before it runs"
        return self.backing.proposer

    @proposer.setter
    def proposer(self, proposer: Proposer) -> None:
        self.backing.proposer = proposer

    @cached_property
    def lengths(self) -> LengthChoice:
        """How far is drafted, from the first step on."""
        from vllm.distributed.parallel_state import get_tp_group

        return LengthChoice(self._config, self.proposer, self.metrics, self._faults, get_tp_group())

    # ---- what vLLM's custom_class asks for

    def load_model(self, target_model: Any) -> None:
        """Load what drafts, before vLLM plans its cache."""
        self.backing.load(target_model)

    def propose(self, *args: Any, **kwargs: Any) -> list[list[int]]:
        """vLLM asks for the method but never calls it: ``draft`` goes before."""
        raise AssertionError("the hook 'draft' was taken away from vLLM's runner")

    # ---- what the hooks call

    def sample(self, runner: Any, logits: Any, metadata: Any | None) -> Any:
        """Decide on the scheduled drafts and draw; see ``sampler.sample``."""
        with self.metrics.timed("sample"):
            # Nobody draws from them any more, and on a CPU vLLM fails when it turns one back, which it does
            # for a seeded request whose prompt is read in chunks.
            runner.input_batch.generators.clear()
            num_requests = runner.input_batch.num_reqs
            draft = scheduled_draft(metadata, num_requests, logits.device)
            self._num_verified = [0] * num_requests if metadata is None else metadata.num_draft_tokens
            if self._sampling is None:
                self._sampling = BatchSampling(self._seed, self._vocab_size, logits.device)
            self._sampled_with = self._sampling.of(runner)
            return sample(runner, logits, self._with_laws(runner, draft), self._sampled_with, self._rule)

    def draft(
        self, runner: Any, scheduler_output: Any, sampled: Sequence[Sequence[int]], given: Mapping[str, Any]
    ) -> list[list[int]]:
        """Learn what the step brought and draft for the next.

        Args:
            sampled: [B], empty where nothing was.
            given: the arguments of vLLM's ``propose_draft_token_ids``.
        """
        with self.metrics.timed("propose"):
            gone = self._ledger.outside(runner.input_batch.req_id_to_index)
            for request_id in {*gone, *scheduler_output.scheduled_cached_reqs.resumed_req_ids}:
                self.release(request_id, "preempted")
            step = Step(runner, sampled, self._num_verified, given)
            with self._faults.caught("read"):
                self.backing.read(step)
            rows = [row for row, tokens in enumerate(sampled) if tokens]
            drafts: list[list[int]] = [[] for _ in sampled]
            if rows:  # else parts of prompts were read, nothing more
                self._observe(runner, rows, sampled, scheduler_output.num_scheduled_tokens)
                for row, tokens in zip(rows, self._propose(runner, rows, step), strict=True):
                    drafts[row] = tokens
        if self._export is not None:
            self._export.write(self.metrics)
        self.lengths.step_ends()
        return drafts

    def release(self, request_id: str, reason: ReleaseReason) -> None:
        """Forget a request. vLLM tells its workers a step late, and not whether it was aborted."""
        self._ledger.forget(request_id)
        self._laws.forget(request_id)
        self.lengths.release(request_id)
        with self._faults.caught("release"):
            self.proposer.release(request_id, reason)

    # ---- one step

    def _with_laws(self, runner: Any, draft: Draft) -> Draft:
        batch = runner.input_batch
        starts = batch.num_tokens_no_spec[: batch.num_reqs].tolist()
        probs = self._laws.probs(batch.req_ids, starts, draft, self._vocab_size)
        return Draft(draft.token_ids, draft.lengths, probs)

    def _observe(
        self,
        runner: Any,
        rows: Sequence[int],
        sampled: Sequence[Sequence[int]],
        num_scheduled: Mapping[str, int],
    ) -> None:
        request_ids = runner.input_batch.req_ids
        outcomes = [
            self._ledger.commit(
                request_ids[row], runner.requests[request_ids[row]], sampled[row], self._num_verified[row]
            )
            for row in rows
        ]
        self.metrics.count(outcomes)
        with self._faults.caught("observe"):
            self.proposer.observe(outcomes)
        entries = [self._ledger.entry(outcome.request_id) for outcome in outcomes]
        self.lengths.observe(outcomes, entries, num_scheduled)

    def _propose(self, runner: Any, rows: Sequence[int], step: Step) -> list[list[int]]:
        """The drafted tokens of ``rows``; none where there may be none, or the proposer failed."""
        request_ids = [runner.input_batch.req_ids[row] for row in rows]
        entries = {request_id: self._ledger.entry(request_id) for request_id in request_ids}
        states = [runner.requests[request_id] for request_id in request_ids]
        rooms = [
            room(entry, state, runner.max_model_len)
            for entry, state in zip(entries.values(), states, strict=True)
        ]
        choice = self.lengths.choose(self.proposer, entries, states, rooms)
        drafted: list[list[int]] = [[] for _ in rows]
        if any(choice.lengths):
            with self.lengths.drafting(self.proposer, choice), self._faults.caught("propose"):
                context = self._context(runner, request_ids, rows, choice)
                self._begin(step, list(entries.values()), rows)
                draft = self.proposer.propose(context)
                drafted = checked_draft(draft, choice.lengths, self._vocab_size)
                self._laws.keep(draft, context)
        else:
            self._laws.clear()
        for entry, tokens in zip(entries.values(), drafted, strict=True):
            entry.block_start, entry.num_drafted = len(entry.token_ids), len(tokens)
        return drafted

    def _begin(self, step: Step, entries: Sequence[Entry], rows: Sequence[int]) -> None:
        places = {entry.row: row for entry, row in zip(entries, rows, strict=True)}
        self.backing.begin(step, places, {entry.row: len(entry.token_ids) for entry in entries})

    def _context(
        self, runner: Any, request_ids: list[str], rows: Sequence[int], choice: Choice
    ) -> DraftContext:
        assert self._sampled_with is not None, "vLLM drafts after it has sampled"
        token_ids = [self._ledger.entry(request_id).token_ids for request_id in request_ids]
        device = self._sampled_with.temperature.device
        sampling = select_sampling(self._sampled_with, torch.tensor(rows, device=device), device)
        grammar = [runner.requests[one].sampling_params.structured_outputs is not None for one in request_ids]
        return DraftContext(
            request_ids=request_ids,
            token_ids=token_ids,
            max_draft_tokens=choice.lengths,
            sampling=replace(
                sampling,
                block_starts=torch.tensor([len(tokens) for tokens in token_ids], device=device),
                # A grammar makes drafts count as point masses (see ``DraftStore``): the likeliest is best.
                temperature=sampling.temperature.masked_fill(torch.tensor(grammar, device=device), 0.0),
            ),
            cache_rows=[self._ledger.entry(request_id).row for request_id in request_ids],
            hidden_states=self.backing.hidden_states,
            members=choice.members,
        )
