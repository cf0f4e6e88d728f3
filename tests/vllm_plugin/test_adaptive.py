"""Lengths that are chosen step by step in vLLM: output as without them, and nothing paid for at 0."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from made_up_clock import made_up_clock
from toys import ScriptedProposer, oracle_of, random_prompts
from transformers import LlamaForCausalLM
from vllm_drafts import Drafts
from vllm_toys import close, make_llm, run, runner_of

from foredraft.proposers import Proposer
from foredraft.scheduler.speculation import StepReport

pytestmark = pytest.mark.vllm

PROMPTS = [*random_prompts(5, seed=3, longest=60), [7, 8, 9] * 13, [4, 5] * 20, [1]]
NAMES = ("head reading states", "draft: a model nearby")


def greedy(**options: Any) -> Any:
    from vllm import SamplingParams

    return SamplingParams(
        **({"temperature": 0, "max_tokens": 40, "ignore_eos": True, "detokenize": False} | options)
    )


@pytest.fixture(scope="module")
def plain(folder: Path) -> list[list[int]]:
    llm = make_llm(folder)
    try:
        return run(llm, PROMPTS, greedy())
    finally:
        close(llm)


def adaptive(model: LlamaForCausalLM, folder: Path, name: str) -> dict[str, Any]:
    """The plugin's options for what drafts: one of ``Drafts``, by itself or beside ngram."""
    alone = name.removeprefix("ngram and ")
    options = {"proposer": "ngram"} if alone == "ngram" else Drafts(model, folder).options(alone)
    options["num_draft_tokens"] = "auto"
    if alone != name:
        options["proposer"] = f"ngram,{options['proposer']}"
    return options | {"ngram": {"min_n": 1}}


@pytest.mark.parametrize("name", ["ngram", *NAMES, "ngram and own head", "ngram and draft: a model nearby"])
def test_greedy_output(
    name: str, model: LlamaForCausalLM, folder: Path, plain: list[list[int]], tmp_path: Path
) -> None:
    """In chunks, with prefix-cache hits and preemption; by the real clock first, then by one made up."""
    llm = make_llm(
        folder,
        adaptive(model, tmp_path, name),
        max_num_batched_tokens=40,
        block_size=32,
        num_gpu_blocks_override=16,
    )
    try:
        drafter = runner_of(llm).drafter
        assert run(llm, PROMPTS, greedy()) == plain
        reports = made_up_clock(drafter)
        assert run(llm, PROMPTS, greedy()) == plain
        assert [run(llm, [prompt], greedy())[0] for prompt in PROMPTS] == plain
        metrics = drafter.metrics
    finally:
        close(llm)
    assert metrics.num_proposer_faults == 0
    assert metrics.num_accepted_tokens > 0
    assert len(metrics.length_counts) > 2
    assert metrics.predicted_tokens_per_s is not None
    if "and" in name:
        assert len(metrics.member_counts) == 2, "either has drafted"
    check_reports(reports)


def check_reports(reports: Sequence[StepReport]) -> None:
    """What the controller is told: tokens by what they were read for, times that add up."""
    for report in reports:
        num_verified = sum(outcome.num_verified for outcome in report.outcomes)
        assert report.num_tokens - report.num_prefill_tokens <= len(report.outcomes) + num_verified
        assert len(report.choice.lengths) == len(report.choice.members) == len(report.outcomes)
        assert 0 <= sum(report.propose_s) < report.step_s
        assert report.target_s == pytest.approx(report.step_s - sum(report.propose_s))
        if not any(report.choice.lengths):
            assert sum(report.propose_s) == 0
        for outcome, length in zip(report.outcomes, report.choice.lengths, strict=True):
            assert outcome.num_drafted <= length
    plain_steps = [one for one in reports if not one.num_prefill_tokens and not any(one.choice.lengths)]
    assert plain_steps
    assert all(one.num_tokens == len(one.outcomes) for one in plain_steps), "a pass is not wider at 0"
    assert any(one.num_prefill_tokens for one in reports)


def test_what_lies_between_two_steps_is_no_part_of_them(folder: Path) -> None:
    """Whoever drives the engine may pause; no pass costs more for it."""
    llm = make_llm(folder, {"proposer": "ngram", "num_draft_tokens": "auto"})
    try:
        drafter = runner_of(llm).drafter
        run(llm, PROMPTS[:1], greedy())
        reports = made_up_clock(drafter)
        engine = llm.llm_engine
        engine.add_request("0", {"prompt_token_ids": [1, 2, 3]}, greedy(max_tokens=24))
        paused_s = 0.0
        while engine.has_unfinished_requests():
            for _ in range(4):
                engine.step()
            time.sleep(0.4)
            paused_s += 0.4
    finally:
        close(llm)
    assert len(reports) > 2
    assert sum(report.step_s for report in reports) < 0.5 * paused_s


class Switching(ScriptedProposer):
    """Right while it is told to be, else wrong from the first token on."""

    def be(self, *, right: bool) -> None:
        self._num_right = 1_000 if right else 0


def runs_of(prompts: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]]) -> list[list[int]]:
    return [[*prompt, *output] for prompt, output in zip(prompts, outputs, strict=True)]


def test_drafting_ends_where_nothing_is_accepted_and_comes_back(
    plain_run: Callable[..., list[list[int]]], open_llm: Callable[..., Any]
) -> None:
    prompt, params = [[3, 1, 4, 1, 5]], greedy(max_tokens=200)
    outputs = plain_run(prompt, params)
    llm = open_llm({"num_draft_tokens": "auto"})
    drafter = runner_of(llm).drafter
    proposer = drafter.proposer = Switching(oracle_of(runs_of(prompt, outputs)))
    reports = made_up_clock(drafter)
    shares = []
    for right in (True, False, False, True, True):
        proposer.be(right=right)
        del reports[:]
        assert run(llm, prompt, params) == outputs
        decoding = [report for report in reports if not report.num_prefill_tokens]
        shares.append(sum(report.choice.lengths[0] > 0 for report in decoding) / len(decoding))
    assert shares[0] > 0.6
    assert shares[2] < 0.1, "probes alone"
    assert shares[4] > 0.6
    assert drafter.metrics.num_probes > 0


class Unwanted(Proposer):
    """Nobody may call it."""

    def propose(self, context: object) -> Any:
        raise AssertionError("nothing was to be drafted")

    def release(self, request_id: str, reason: object) -> None:
        pass


@pytest.mark.parametrize("lengths", ["auto", 4])
def test_a_request_may_ask_for_no_drafts(open_llm: Callable[..., Any], lengths: int | str) -> None:
    llm = open_llm({"num_draft_tokens": lengths, "ngram": {"min_n": 1}})
    drafter = runner_of(llm).drafter
    prompts = random_prompts(4, seed=8, longest=20)
    outputs = run(llm, prompts, greedy())
    known = ScriptedProposer(oracle_of(runs_of(prompts, outputs)))
    drafter.proposer = known
    limited = [greedy(extra_args={"num_draft_tokens": limit}) for limit in (0, 1, 2)] + [greedy()]
    reports = made_up_clock(drafter)
    assert run(llm, prompts, limited) == outputs
    longest: dict[str, int] = {}
    for outcome in known.outcomes:
        longest[outcome.request_id] = max(longest.get(outcome.request_id, 0), outcome.num_drafted)
    found = list(longest.values())  # in the order of the requests
    assert all(length <= most for length, most in zip(found, (0, 1, 2, 16), strict=True))
    if lengths == 4:
        assert found == [0, 1, 2, 4]
    drafter.proposer = Unwanted()
    del reports[:]
    none = greedy(extra_args={"num_draft_tokens": 0})
    assert run(llm, prompts, none) == outputs
    assert drafter.metrics.num_proposer_faults == 0
    check_reports(reports)


@pytest.mark.parametrize("limit", [-1, 33, 1.0, True, "2"])
def test_limits_that_are_refused(open_llm: Callable[..., Any], limit: object) -> None:
    from vllm.exceptions import VLLMValidationError

    llm = open_llm({"num_draft_tokens": "auto"})
    with pytest.raises(VLLMValidationError, match="num_draft_tokens: should be a whole number from 0 to 32"):
        run(llm, [[1, 2]], greedy(extra_args={"num_draft_tokens": limit}))
