"""A proposer of the user's reads the target's last hidden states, whatever brought a token into the cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from toys import random_prompts
from vllm_drafts import target_model
from vllm_toys import close, make_llm, run, runner_of

from foredraft.integration.vllm.paged.backing import StatesBacking
from foredraft.proposers import DraftContext, Proposer, ReleaseReason
from foredraft.verifier import Draft

pytestmark = pytest.mark.vllm

MODEL = target_model()


class Reading(Proposer):
    """Compares every state it can read with what transformers computes; drafts anything."""

    needs_hidden_states = True

    def __init__(self) -> None:
        self.num_compared = 0
        self.reasons: set[ReleaseReason] = set()

    def propose(self, context: DraftContext) -> Draft:
        assert context.hidden_states is not None
        counts = [len(tokens) for tokens in context.token_ids]  # from position -1, up to the last but one
        read = context.hidden_states.read(context.cache_rows, [-1] * len(counts), counts).split(counts)
        for tokens, states in zip(context.token_ids, read, strict=True):
            expected = MODEL.model(torch.tensor([tokens[:-1]])).last_hidden_state[0]
            assert not states[0].any(), "nothing stands before the text"
            assert torch.allclose(states[1:], expected, atol=1e-3, rtol=1e-3)
            self.num_compared += len(expected)
        newest = [(tokens[-1] * 5 + 3) % 97 for tokens in context.token_ids]
        limits = context.max_draft_tokens
        return Draft.from_lists([[token] * limit for token, limit in zip(newest, limits, strict=True)])

    def release(self, request_id: str, reason: ReleaseReason) -> None:
        self.reasons.add(reason)


def test_states_of_all_committed_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm import SamplingParams

    MODEL.save_pretrained(tmp_path)
    proposer = Reading()

    def created(name: str, options: dict[str, Any]) -> Proposer:
        return proposer

    monkeypatch.setattr("foredraft.integration.vllm.backings.create_proposer", created)
    llm = make_llm(
        tmp_path,
        {"proposer": "ngram", "num_draft_tokens": 3},
        max_num_batched_tokens=32,
        block_size=32,
        num_gpu_blocks_override=14,
    )
    try:
        drafter = runner_of(llm).drafter
        assert isinstance(drafter.backing, StatesBacking)
        prompts = [*([7, 8, 9] * 13 + [end] for end in range(4)), *random_prompts(5, seed=3, longest=90)]
        params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True, detokenize=False)
        for _ in range(2):
            run(llm, prompts, params)
        assert drafter.metrics.num_proposer_faults == 0, "every comparison held"
    finally:
        close(llm)
    assert proposer.num_compared > 10_000
    assert "preempted" in proposer.reasons
