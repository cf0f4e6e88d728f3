"""``draft`` and ``early_exit`` in vLLM: output as of a stock vLLM, drafts as of the embedded engine.

Under all that happens to a cache at once: prompts in chunks, prefix-cache hits, preemption.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from toys import random_prompts
from transformers import LlamaForCausalLM
from vllm_drafts import NUM_DRAFT_TOKENS, Drafts, Embedded, Recording
from vllm_toys import close, make_llm, run, runner_of

from foredraft.integration.vllm.paged.backlog import MOST_TOKENS, MOST_WAITING, Backlog
from foredraft.scheduler.speculation import Choice, DraftBatch, FixedDraftLength

pytestmark = pytest.mark.vllm

# In pairs with a common start, which the cache keeps; no prompt of one token, which nothing precedes.
COMMON = [[7, 8, 9] * 13 + [end] for end in range(4)]
PROMPTS = [*COMMON, *(prompt for prompt in random_prompts(5, seed=3, longest=90) if len(prompt) > 1)]
# Chunks that end inside a block, so that some blocks are read in one go.
STRESS: dict[str, Any] = {"max_num_batched_tokens": 40, "block_size": 32, "num_gpu_blocks_override": 14}
WHOLE = (
    "own head, all layers",
    "head: the last layer",
    "head: the last 2 layers",
    "draft: the model itself",
    "trained draft: the layers themselves",
)
PARTLY = (
    "own head",
    "head reading states",
    "head of 2 layers reading states",
    "draft: a model nearby",
    "trained draft reading states",
)


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


def first_starts(llm: Any) -> dict[str, int]:
    """Where each request's reading begins, filled while it runs: above 0 after a prefix-cache hit."""
    runner, starts = runner_of(llm), {}
    backing = runner.drafter.backing
    read = backing.read

    def watching(step: Any) -> None:
        for request_id, start in zip(runner.input_batch.req_ids, step.starts, strict=True):
            starts.setdefault(request_id, start)
        read(step)

    backing.read = watching
    return starts


@pytest.mark.parametrize("name", [*WHOLE, *PARTLY])
def test_output_and_drafts(
    name: str, model: LlamaForCausalLM, folder: Path, plain: list[list[int]], tmp_path: Path
) -> None:
    options = Drafts(model, tmp_path).options(name)
    llm = make_llm(folder, options, **STRESS)
    try:
        drafter = runner_of(llm).drafter
        recording = drafter.proposer = Recording(drafter.proposer)
        starts = first_starts(llm)
        for _ in range(2):  # the second time the cache knows the prompts
            assert run(llm, PROMPTS, greedy()) == plain
        metrics = drafter.metrics
    finally:
        close(llm)
    assert metrics.num_proposer_faults == 0
    assert "preempted" in recording.reasons
    assert any(start > 0 for start in starts.values()), "the prefix cache was hit"
    accepted = metrics.num_accepted_tokens / metrics.num_drafted_tokens
    assert accepted == 1 if name in WHOLE else 0.03 < accepted < 0.97
    embedded = Embedded(model, options)
    assert len(recording.drafted) > 60
    for committed, drafted in recording.drafted.items():
        assert embedded.draft(committed, len(drafted)) == drafted, committed


class Seldom(FixedDraftLength):
    """Drafts in one step of so many."""

    def __init__(self, interval: int) -> None:
        super().__init__(NUM_DRAFT_TOKENS)
        self._interval, self._step = interval, 0

    def choose(self, batch: DraftBatch) -> Choice:
        self._step += 1
        return super().choose(batch) if self._step % self._interval == 0 else Choice([0] * len(batch.rooms))


@pytest.mark.parametrize("interval", [3, 8, MOST_WAITING + 5])
@pytest.mark.parametrize(
    "name",
    [
        "head: the last layer",
        "head reading states",
        "head of 2 layers reading states",
        "trained draft of one layer",
    ],
)
def test_what_was_read_late_is_what_would_have_been_read_at_once(
    name: str, interval: int, model: LlamaForCausalLM, folder: Path, tmp_path: Path, plain_of: Any
) -> None:
    """Tokens of steps without drafts wait for the next draft, or for so many passes."""
    stress = STRESS if interval < MOST_WAITING else {}  # preempted requests stay for few steps
    params = greedy(max_tokens=90 if interval > MOST_WAITING else 40)
    expected = plain_of(PROMPTS, params)
    options = Drafts(model, tmp_path).options(name)
    llm = make_llm(folder, options, **stress)
    try:
        drafter = runner_of(llm).drafter
        recording = drafter.proposer = Recording(drafter.proposer)
        drafter.lengths.controller = Seldom(interval)
        backlog, num_passes = drafter.backing._backlog, []
        take = backlog.take
        backlog.take = lambda: (num_passes.append(len(backlog)), take())[1]
        for _ in range(2):
            assert run(llm, PROMPTS, params) == expected
        assert drafter.metrics.num_proposer_faults == 0
    finally:
        close(llm)
    if "2 layers" in name:
        assert not num_passes, "layers that look at each other's outputs read at once"
    else:
        assert max(num_passes) <= min(interval - 1, MOST_WAITING)
        assert max(num_passes) >= min(interval - 1, MOST_TOKENS // len(PROMPTS))
    embedded = Embedded(model, options)
    assert len(recording.drafted) > 10
    for committed, drafted in recording.drafted.items():
        assert embedded.draft(committed, len(drafted)) == drafted, committed


def test_nobody_waits_with_tokens_of_others() -> None:
    """Who came with a single token, the rest being in the prefix cache, has passes like any other's."""

    def step(*request_ids: str, first: int = 6, is_plain: bool = True, kept: int = 1) -> Any:
        num_rows = len(request_ids)
        return SimpleNamespace(
            request_ids=[*request_ids], is_plain=is_plain, starts=[first] * num_rows, kept=[kept] * num_rows
        )

    backlog = Backlog(None)
    assert not backlog.takes(step("a", "b"))
    backlog.read_at_once(step("a", "b", first=3, kept=3, is_plain=False))
    assert backlog.takes(step("a", "b"))
    assert not backlog.takes(step("a", "b", is_plain=False))
    assert not backlog.takes(step("a", "b", first=0)), "another request by the same name"
    for others in (("b", "a"), ("a", "c"), ("a",), ("a", "b", "c")):
        assert not backlog.takes(step(*others))
    many = [str(number) for number in range(MOST_TOKENS + 1)]
    backlog.read_at_once(step(*many))
    assert not backlog.takes(step(*many, first=7)), "so many are read at once"


@pytest.mark.parametrize("name", ["own head", "head reading states", "draft: another shape"])
def test_one_request_at_a_time(
    name: str, model: LlamaForCausalLM, folder: Path, plain: list[list[int]], tmp_path: Path
) -> None:
    """The last of them has keys and values of another size than the target's, in the same blocks."""
    llm = make_llm(folder, Drafts(model, tmp_path).options(name), max_num_seqs=1)
    try:
        assert run(llm, PROMPTS, greedy()) == plain
        assert runner_of(llm).drafter.metrics.num_proposer_faults == 0
        assert runner_of(llm).drafter.metrics.num_drafted_tokens > 100
    finally:
        close(llm)


def test_the_length_limit_and_ragged_drafts(
    model: LlamaForCausalLM, folder: Path, tmp_path: Path, plain_of: Callable[..., list[list[int]]]
) -> None:
    """Requests end at different places: by max_model_len, by max_tokens, and one at once."""
    prompts, limit = [list(range(80)), [5, 6, 7], [8, 9], [1, 2, 3]], 95
    params = [greedy(), greedy(max_tokens=33), greedy(max_tokens=6), greedy(max_tokens=1)]
    expected = plain_of(prompts, params, max_model_len=limit)
    assert len(expected[0]) == limit - 80
    for name in ("head reading states", "draft: a model nearby"):
        llm = make_llm(folder, Drafts(model, tmp_path).options(name), max_model_len=limit)
        try:
            assert run(llm, prompts, params) == expected
            assert runner_of(llm).drafter.metrics.num_proposer_faults == 0
        finally:
            close(llm)


@pytest.fixture
def plain_of(folder: Path) -> Callable[..., list[list[int]]]:
    def plain(prompts: Any, params: Any, **options: Any) -> list[list[int]]:
        llm = make_llm(folder, **options)
        try:
            return run(llm, prompts, params)
        finally:
            close(llm)

    return plain
