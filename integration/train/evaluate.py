"""How often the target would accept the draft's next token, on held-out text read along (teacher-forced)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from foredraft.integration.train.batches import Batch
from foredraft.integration.train.student import Student

ROWS = 64


@dataclass(frozen=True)
class Acceptance:
    """Chance that the first drafted token is accepted: at temperature 0, and at temperature 1."""

    greedy: float
    sampled: float


@torch.no_grad()
def held_out_acceptance(
    student: Student, embedding: Tensor, head_ids: Tensor, batches: Sequence[Batch], autocast: torch.autocast
) -> Acceptance:
    """Mean over the positions that count in ``batches``."""
    greedy = sampled = 0.0
    count = 0
    for batch in batches:
        with autocast:
            hidden = student(batch.given(embedding), batch.state_inputs)
        hidden = hidden.flatten(0, 1)[batch.places]
        for own, states, log_normalisers, argmax in zip(
            hidden.split(ROWS),
            batch.target_states.split(ROWS),
            batch.log_normalisers.split(ROWS),
            batch.argmax.split(ROWS),
            strict=True,
        ):
            logits = _logits(own, student.head_weight)
            target_probs = (_logits(states, student.head_weight) - log_normalisers[:, None]).exp()
            greedy += (head_ids[logits.argmax(-1)] == argmax).sum().item()
            sampled += torch.minimum(logits.softmax(-1), target_probs).sum().item()
            count += len(own)
    return Acceptance(greedy / count, sampled / count)


def _logits(states: Tensor, head_weight: Tensor) -> Tensor:
    return F.linear(states.to(head_weight.dtype), head_weight).float()
