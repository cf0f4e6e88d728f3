"""What the proposer is told, what a faulty one costs, and what is left of requests (F93, F127, F183)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from toys import ScriptedProposer, oracle_of, random_prompts
from vllm_toys import run, runner_of

from foredraft.proposers.base import DraftContext, Outcome, Proposer, ReleaseReason
from foredraft.proposers.ngram import NgramProposer
from foredraft.verifier import Draft

pytestmark = pytest.mark.vllm

PROMPTS = random_prompts(6, seed=9, longest=30)


def greedy(**options: Any) -> Any:
    from vllm import SamplingParams

    return SamplingParams(**({"temperature": 0, "max_tokens": 20, "detokenize": False} | options))


def runs_of(prompts: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]]) -> list[list[int]]:
    return [[*prompt, *output] for prompt, output in zip(prompts, outputs, strict=True)]


def assert_nothing_left(llm: Any) -> None:
    """After one more step, by which vLLM tells its workers who has finished."""
    run(llm, [[1]], greedy(max_tokens=1))
    run(llm, [[2]], greedy(max_tokens=1))
    drafter = runner_of(llm).drafter
    assert len(drafter._ledger) <= 1
    assert len(drafter._laws) == 0


class Watching(ScriptedProposer):
    """Checks what it is given against what it was told."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.seen: dict[str, list[int]] = defaultdict(list)
        self.rows: dict[str, int] = {}

    def release(self, request_id: str, reason: ReleaseReason) -> None:
        super().release(request_id, reason)
        self.rows.pop(request_id, None)

    def propose(self, context: DraftContext) -> Draft:
        for request_id, tokens, start in zip(
            context.request_ids, context.token_ids, context.sampling.block_starts.tolist(), strict=True
        ):
            assert len(tokens) == start
            assert all(type(token) is int for token in tokens)
            self.seen[request_id] = list(tokens)
        assert len(set(context.cache_rows)) == len(context.cache_rows)
        for request_id, row in zip(context.request_ids, context.cache_rows, strict=True):
            assert 0 <= row < 8
            assert self.rows.setdefault(request_id, row) == row, "a running request keeps its row"
        return super().propose(context)

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        super().observe(outcomes)
        for outcome in outcomes:
            known = self.seen.get(outcome.request_id)
            if known:
                assert outcome.block_start == len(known)
                known += outcome.committed_ids


def test_contexts_and_outcomes_agree(open_llm: Callable[..., Any]) -> None:
    llm = open_llm({"num_draft_tokens": 4}, max_num_batched_tokens=32, enable_chunked_prefill=True)
    outputs = run(llm, PROMPTS, greedy())
    drafter = runner_of(llm).drafter
    stop = outputs[0][9]
    proposer = drafter.proposer = Watching(oracle_of(runs_of(PROMPTS, outputs)), lengths=[4, 2, 0])
    stopped = run(llm, PROMPTS, greedy(stop_token_ids=[stop]))
    assert drafter.metrics.num_proposer_faults == 0, "the checks of Watching"
    committed: dict[str, list[int]] = defaultdict(list)
    for outcome in proposer.outcomes:
        committed[outcome.request_id] += outcome.committed_ids
        assert outcome.num_accepted <= outcome.num_verified <= outcome.num_drafted
        assert outcome.num_accepted <= len(outcome.committed_ids) <= outcome.num_accepted + 1
    assert sorted(committed.values()) == sorted(stopped), "what was committed ends where the request ends"
    assert_nothing_left(llm)
    assert set(committed) <= {request_id for request_id, _ in proposer.released}


class Failing(Proposer):
    """Raises in one of its methods, or breaks the contract in one of several ways."""

    def __init__(self, where: str) -> None:
        self.where = where

    def propose(self, context: DraftContext) -> Draft:
        if self.where == "propose":
            raise RuntimeError("on purpose")
        num_extra = {"too long": 3, "out of vocabulary": 0}.get(self.where, 0)
        token = 97 if self.where == "out of vocabulary" else 1
        return Draft.from_lists([[token] * (limit + num_extra) for limit in context.max_draft_tokens])

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        if self.where == "observe":
            raise RuntimeError("on purpose")

    def release(self, request_id: str, reason: ReleaseReason) -> None:
        if self.where == "release":
            raise RuntimeError("on purpose")


def test_a_faulty_proposer_costs_its_draft_alone(open_llm: Callable[..., Any]) -> None:
    llm = open_llm({"num_draft_tokens": 4})
    drafter = runner_of(llm).drafter
    drafter.proposer = ScriptedProposer(lambda tokens: [])
    plain = run(llm, PROMPTS, greedy())
    for where in ("propose", "observe", "release", "too long", "out of vocabulary"):
        drafter.metrics.num_proposer_faults = 0
        drafter.proposer = Failing(where)
        assert run(llm, PROMPTS, greedy()) == plain, where
        run(llm, [[1]], greedy(max_tokens=1))
        assert drafter.metrics.num_proposer_faults > 0, where


def test_preempted_requests_come_back_with_the_same_output(
    plain_run: Callable[..., list[list[int]]], open_llm: Callable[..., Any]
) -> None:
    """8 requests that want 3 blocks each, where there are 13 of them."""
    prompts, params = random_prompts(8, seed=2, longest=12), greedy(max_tokens=80)
    expected = plain_run(prompts, params)
    llm = open_llm(
        {"num_draft_tokens": 4}, num_gpu_blocks_override=14, block_size=32, enable_prefix_caching=False
    )
    drafter = runner_of(llm).drafter
    proposer = drafter.proposer = Watching(oracle_of(runs_of(prompts, expected)), num_right=3)
    assert run(llm, prompts, params) == expected
    assert "preempted" in {reason for _, reason in proposer.released}
    assert drafter.metrics.num_proposer_faults == 0
    assert_nothing_left(llm)


def test_aborted_requests_are_forgotten(open_llm: Callable[..., Any]) -> None:
    llm = open_llm({"num_draft_tokens": 4, "ngram": {"min_n": 1}})
    engine, drafter = llm.llm_engine, runner_of(llm).drafter
    for name in ("a", "b"):
        engine.add_request(name, {"prompt_token_ids": PROMPTS[0]}, greedy(max_tokens=100, ignore_eos=True))
    for _ in range(4):
        engine.step()
    assert len(drafter._ledger) == 2
    engine.abort_request(["a"])
    while engine.has_unfinished_requests():
        engine.step()
    assert_nothing_left(llm)
    assert isinstance(drafter.proposer, NgramProposer)
    assert len(drafter.proposer._indexes) <= 1
