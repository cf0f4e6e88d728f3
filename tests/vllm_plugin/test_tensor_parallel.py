"""Two ranks of one model: the first decides how far is drafted, and what the other drafts is not asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from toys import random_prompts
from vllm_toys import run

from foredraft.proposers import DraftContext, Proposer, ReleaseReason
from foredraft.verifier import Draft

pytestmark = pytest.mark.vllm

PROMPTS = [*random_prompts(3, seed=3, longest=60), [7, 8, 9] * 13, [4, 5] * 20]


def greedy() -> Any:
    from vllm import SamplingParams

    return SamplingParams(temperature=0, max_tokens=32, ignore_eos=True, detokenize=False)


def drafter_in(worker: Any) -> Any:
    return worker.model_runner.drafter


def note_lengths(worker: Any) -> None:
    """Keep what every step was given."""
    lengths = drafter_in(worker).lengths
    chosen, lengths.noted = lengths.choose, []

    def choose(*args: Any) -> Any:
        choice = chosen(*args)
        lengths.noted.append((choice.lengths, choice.members))
        return choice

    lengths.choose = choose


def noted_lengths(worker: Any) -> list[tuple[list[int], list[int]]]:
    return list(drafter_in(worker).lengths.noted)


def draft_less_on_the_second(worker: Any) -> None:
    """One token fewer."""
    if worker.rank == 1:
        drafter = drafter_in(worker)
        drafter.proposer = Short(drafter.proposer)


class Short(Proposer):
    """Another, without the last token of each draft."""

    def __init__(self, proposer: Proposer) -> None:
        self._proposer = proposer

    def propose(self, context: DraftContext) -> Draft:
        draft = self._proposer.propose(context)
        pairs = zip(draft.token_ids.tolist(), draft.lengths.tolist(), strict=True)
        return Draft.from_lists([tokens[: max(length - 1, 0)] for tokens, length in pairs])

    def release(self, request_id: str, reason: ReleaseReason) -> None:
        self._proposer.release(request_id, reason)


@pytest.mark.parametrize("num_draft_tokens", ["auto", 4])
def test_ranks_that_would_draft_otherwise(
    num_draft_tokens: int | str, plain_run: Callable[..., list[list[int]]], open_llm: Callable[..., Any]
) -> None:
    """Neither hangs, nor is the output another (F109)."""
    options = {"proposer": "ngram", "num_draft_tokens": num_draft_tokens, "ngram": {"min_n": 1}}
    plain = plain_run(PROMPTS, greedy())
    llm = open_llm(options, tensor_parallel_size=2)
    llm.collective_rpc(note_lengths)
    llm.collective_rpc(draft_less_on_the_second)
    assert run(llm, PROMPTS, greedy()) == plain
    assert run(llm, PROMPTS, greedy()) == plain
    first, second = llm.collective_rpc(noted_lengths)
    assert first == second
    drafted = {length for lengths, _ in first for length in lengths}
    assert len(drafted) > 2 if num_draft_tokens == "auto" else max(drafted) == 4
    accepted = llm.collective_rpc(lambda worker: drafter_in(worker).metrics.num_accepted_tokens)
    assert accepted[0] == accepted[1] > 0
