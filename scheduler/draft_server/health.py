"""Whether a draft server can draft: it does, on a row that no target gets."""

from __future__ import annotations

import torch

from foredraft.proposers.remote_messages import RequestSampling
from foredraft.scheduler.draft_server.drafting import draft_rows
from foredraft.scheduler.draft_server.held import Held
from foredraft.scheduler.draft_server.hosted import HostedDraft

CHECK = "health check"
"""Stands for a target's id."""


def draft_something(hosted: HostedDraft, row: int) -> None:
    """Draft one token after two.

    Raises:
        RuntimeError: nothing came of it.
    """
    held = Held(CHECK, row, RequestSampling(request_key=0), token_ids=[0, 0])
    if hosted.states is not None:
        hosted.states.clear(row)
        hosted.states.write(row, 0, torch.zeros(1, hosted.states.size))
    (drafted,) = draft_rows(hosted, [held], [1])
    hosted.proposer.release(CHECK, "finished")
    # A draft that stops where it is not sure may leave it at none.
    if any(not 0 <= token < hosted.vocab_size for token in drafted.token_ids):
        raise RuntimeError(f"it drafts {drafted.token_ids}, which are no tokens")
