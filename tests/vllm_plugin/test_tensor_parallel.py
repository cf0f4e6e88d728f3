"""Two ranks of one model: the first decides how far is drafted, and what the other drafts is not asked."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from toys import random_prompts
from vllm_toys import run

from foredraft.integration.vllm.ranked_choice import RankedChoice
from foredraft.proposers import DraftContext, Proposer, ReleaseReason
from foredraft.scheduler.speculation import Choice, FixedDraftLength
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
        lengths.noted.append(list(choice.lengths))
        return choice

    lengths.choose = choose


def noted_lengths(worker: Any) -> list[list[int]]:
    noted = drafter_in(worker).lengths.noted
    taken = list(noted)
    del noted[:]
    return taken


def differ(worker: Any) -> None:
    """The second rank would draft further than the first, and drops the last token of each draft."""
    drafter = drafter_in(worker)
    drafter.lengths.controller = FixedDraftLength(2 + 3 * worker.rank)
    if worker.rank == 1:
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


def test_ranks_that_would_draft_otherwise(
    plain_run: Callable[..., list[list[int]]], open_llm: Callable[..., Any]
) -> None:
    """Neither hangs, nor is the output another (F109); prompts are read in chunks."""
    options = {"proposer": "ngram", "num_draft_tokens": "auto", "ngram": {"min_n": 1}}
    plain = plain_run(PROMPTS, greedy())
    llm = open_llm(options, tensor_parallel_size=2, max_num_batched_tokens=40)
    llm.collective_rpc(note_lengths)
    assert run(llm, PROMPTS, greedy()) == plain
    first, second = llm.collective_rpc(noted_lengths)
    assert first == second
    assert any(map(any, first))
    llm.collective_rpc(differ)
    assert run(llm, PROMPTS, greedy()) == plain
    first, second = llm.collective_rpc(noted_lengths)
    assert first == second
    assert max(map(max, first)) == 2
    accepted = llm.collective_rpc(lambda worker: drafter_in(worker).metrics.num_accepted_tokens)
    assert accepted[0] == accepted[1] > 0


class Mailbox:
    """Stands in for vLLM's group: the first rank puts in, the second takes out."""

    def __init__(self, sent: deque[Any], *, is_first_rank: bool) -> None:
        self._sent, self.is_first_rank = sent, is_first_rank

    def broadcast_object(self, value: Any) -> Any:
        if not self.is_first_rank:
            return self._sent.popleft()
        self._sent.append(value)
        return value


def test_a_rank_that_missed_a_choice_does_not_take_it_for_a_later_one() -> None:
    sent: deque[Any] = deque()
    first, second = (RankedChoice(Mailbox(sent, is_first_rank=one)) for one in (True, False))
    for number in range(4):
        first.pass_begins()
        second.pass_begins()
        assert first.agreed(Choice([number])).lengths == [number]
        if number != 1:  # in which the second fails before it asks
            assert second.agreed(None).lengths == [number]
    first.pass_begins()
    first.agreed(Choice([4]))
    with pytest.raises(RuntimeError, match="for pass 5 reached a rank in pass 4"):
        second.agreed(None)
    first.pass_begins()
    second.pass_begins()
    first.agreed(Choice([5]))
    assert second.agreed(None).lengths == [5], "once is enough"
