"""Bookkeeping between vLLM's batch and the proposer. Needs no vLLM."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from foredraft.integration.vllm.draft_store import DraftStore
from foredraft.integration.vllm.ledger import Ledger, room
from foredraft.proposers import DraftContext
from foredraft.verifier import Draft, DraftProbs, SamplingBatch


def state(prompt: list[int], output: list[int], **params: Any) -> Any:
    """A request as vLLM's runner has it, with its newest tokens."""
    given = {"max_tokens": 20, "eos_token_id": None, "stop_token_ids": []}
    return SimpleNamespace(
        prompt_token_ids=prompt,
        num_prompt_tokens=len(prompt),
        output_token_ids=output,
        num_tokens=len(prompt) + len(output),
        sampling_params=SimpleNamespace(**(given | params)),
    )


def test_requests_outside_of_the_batch_are_named() -> None:
    ledger = Ledger()
    for name in "abc":
        ledger.commit(name, state([1], [2]), [2], 0)
    assert ledger.outside({"a": 0, "c": 1, "new": 2}) == ["b"]


def test_rows_stay_and_are_used_again() -> None:
    ledger = Ledger()
    for name in "abc":
        ledger.commit(name, state([1], [2]), [2], 0)
    ledger.forget("b")
    ledger.commit("a", state([1], [2, 3]), [3], 0)
    ledger.commit("d", state([1], [2]), [2], 0)
    ledger.commit("e", state([1], [2]), [2], 0)
    assert [ledger.entry(name).row for name in "acde"] == [0, 2, 1, 3]


def test_tokens_grow_or_are_taken_anew() -> None:
    ledger = Ledger()
    ledger.commit("a", state([1, 2], [3]), [3], 0)
    assert ledger.commit("a", state([1, 2], [3, 4, 5]), [4, 5], 1).block_start == 3
    assert ledger.entry("a").token_ids == [1, 2, 3, 4, 5]
    taken_back = state([1, 2], [3, 9])  # vLLM discards output whose keys and values failed to load
    assert ledger.commit("a", taken_back, [9], 0).block_start == 3
    assert ledger.entry("a").token_ids == [1, 2, 3, 9]


def test_a_block_ends_where_the_request_does() -> None:
    """vLLM's scheduler drops what follows the end; nobody may learn from it, or draft after it."""
    for params in ({"eos_token_id": 7}, {"stop_token_ids": [7]}, {"max_tokens": 3}):
        ledger = Ledger()
        one = state([1], [5, 6, 7, 8, 9], **params)
        outcome = ledger.commit("a", one, [5, 6, 7, 8, 9], 4)
        assert outcome.committed_ids == (5, 6, 7)
        assert outcome.num_accepted == 3
        assert room(ledger.entry("a"), one, 100) == 0
    ledger = Ledger()
    ledger.commit("a", state([1], [5, 6]), [5, 6], 4)
    assert room(ledger.entry("a"), state([1], [5, 6], max_tokens=5), 100) == 2
    assert room(ledger.entry("a"), state([1], [5, 6], max_tokens=None), 6) == 2


def context(request_ids: list[str], lengths: list[int], temperature: float = 1.0) -> DraftContext:
    rows = len(request_ids)
    sampling = SamplingBatch(torch.full((rows,), temperature), torch.arange(rows), torch.tensor(lengths))
    return DraftContext(request_ids, [[0] * length for length in lengths], [2] * rows, sampling)


def laws(rows: int, width: int, size: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(rows, width, size, generator=generator).softmax(-1)


def drafted(lengths: list[int]) -> Draft:
    return Draft.from_lists([[1] * length for length in lengths])


def drawn(lengths: list[int], rows: list[int], probs: Tensor, support_ids: Tensor | None = None) -> Draft:
    draft = drafted(lengths)
    return Draft(draft.token_ids, draft.lengths, DraftProbs(torch.tensor(rows), probs, support_ids))


def test_laws_come_back_with_their_requests() -> None:
    store, probs = DraftStore(), laws(2, 3, 8, 0)
    draft = Draft(
        torch.ones(3, 3, dtype=torch.int64), torch.full((3,), 3), DraftProbs(torch.tensor([0, 2]), probs)
    )
    store.keep(draft, context(["a", "b", "c"], [4, 5, 6]))
    found = store.probs(["c", "b", "a"], [6, 5, 4], drafted([2, 2, 2]), 8)
    assert found is not None
    assert found.rows.tolist() == [0, 2]
    assert torch.equal(found.probs, probs[[1, 0], :2])
    stale = store.probs(["c", "b", "a"], [7, 5, 4], drafted([2, 2, 2]), 8)
    assert stale is not None
    assert stale.rows.tolist() == [2], "the law of another block is no law of this one"
    store.keep(drafted([2]), context(["a"], [9]))
    assert store.probs(["a"], [4], drafted([2]), 8) is None


def test_laws_of_two_calls_in_two_forms() -> None:
    store, dense, sparse = DraftStore(), laws(1, 2, 8, 1), laws(1, 1, 3, 2)
    ids = torch.tensor([[[7, 2, 4]]])
    store.keep(drawn([2], [0], dense), context(["a"], [4]))
    store.keep(drawn([1], [0], sparse, ids), context(["b"], [4]))
    found = store.probs(["a", "b"], [4, 4], drafted([2, 1]), 8)
    assert found is not None
    assert found.support_ids is None
    assert torch.equal(found.probs[0], dense[0])
    assert torch.equal(found.probs[1, 0, ids[0, 0]], sparse[0, 0])
    assert found.probs[1].sum().item() == pytest.approx(1)


def test_greedy_requests_keep_no_law() -> None:
    store = DraftStore()
    store.keep(drawn([2], [0], laws(1, 2, 8, 3)), context(["a"], [4], temperature=0.0))
    assert len(store) == 0
