"""Stage 2, the vocabulary: which tokens the draft can propose."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from foredraft.integration.errors import UserError
from foredraft.integration.train.samples import Sample


def check_in_vocabulary(samples: Iterable[Sample], vocab_size: int) -> None:
    """Refuse samples that another model wrote.

    Raises:
        UserError: a token is outside of the model's vocabulary.
    """
    highest = max((max(sample.token_ids, default=0) for sample in samples), default=0)
    if highest >= vocab_size:
        raise UserError(
            f"--data: token {highest} is outside the model's vocabulary of {vocab_size}; samples of another "
            "model?"
        )


def choose_head_ids(
    samples: Iterable[Sample], num_tokens: int, vocab_size: int, eos_ids: Iterable[int]
) -> Tensor:
    """The most frequent tokens among those to predict in the training samples, and what ends a sequence.

    Ties go to the lower id, and so does what is left over when fewer tokens occur.

    Returns:
        [S] int64, ascending; S = ``num_tokens``, or ``vocab_size`` if that is less.
    """
    counts = torch.bincount(_predicted(samples, held_out=False), minlength=vocab_size)
    ends = [token for token in eos_ids if token < vocab_size]
    counts[ends] = torch.iinfo(counts.dtype).max
    by_frequency = torch.sort(counts, descending=True, stable=True).indices
    return by_frequency[:num_tokens].sort().values


def coverage(samples: Iterable[Sample], head_ids: Tensor) -> float:
    """Share of the tokens to predict in held-out samples that the draft can propose; 0 without any."""
    tokens = _predicted(samples, held_out=True)
    return torch.isin(tokens, head_ids).float().mean().item() if len(tokens) else 0.0


def _predicted(samples: Iterable[Sample], *, held_out: bool) -> Tensor:
    tokens = [
        token
        for sample in samples
        if sample.held_out == held_out
        for token in sample.token_ids[sample.loss_start :]
    ]
    return torch.tensor(tokens, dtype=torch.int64)
