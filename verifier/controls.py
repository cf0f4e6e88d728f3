"""Controls that edit single logits, applied per position: the drafted prefix counts as output."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from foredraft.verifier.draft import Draft
from foredraft.verifier.rows import Layout
from foredraft.verifier.sampling import SamplingBatch, TokenControls


def process_logits(target_logits: Tensor, draft: Draft, sampling: SamplingBatch, layout: Layout) -> Tensor:
    """The target's logits after every control that edits them, in vLLM's order.

    Args:
        target_logits: [N, V] any float dtype, N = sum(lengths + 1); not modified.

    Returns:
        [N, V] float32; ``target_logits`` itself where nothing had to change.
    """
    logits = target_logits.float()
    controls = sampling.controls or ()
    if sampling.allowed_mask is None and all(control is None for control in controls):
        return logits
    if logits is target_logits:
        logits = logits.clone()
    if sampling.allowed_mask is not None:
        _forbid(logits, sampling.allowed_mask)
    # Controls arrive as Python lists, so reading the draft back to the host is nothing new.
    starts, lengths = layout.starts.tolist(), draft.lengths.tolist()
    for req_idx, control in enumerate(controls):
        if control is not None:
            drafted = draft.token_ids[req_idx, : lengths[req_idx]].tolist()
            start = starts[req_idx]
            edit_logits(logits[start : start + len(drafted) + 1], control, drafted)
    return logits


def edit_logits(logits: Tensor, controls: TokenControls, drafted: Sequence[int]) -> None:
    """Apply one request's controls in place.

    Args:
        logits: [L + 1, V] float32; row i comes after the committed tokens and ``drafted[:i]``.
        drafted: L token ids.
    """
    if controls.allowed_token_ids is not None:
        forbidden = torch.ones(logits.shape[1], dtype=torch.bool, device=logits.device)
        forbidden[list(controls.allowed_token_ids)] = False
        logits.masked_fill_(forbidden, -math.inf)
    if controls.bad_words:
        _forbid_bad_words(logits, controls, drafted)
    if controls.stop_token_ids:
        too_early = max(controls.min_tokens - len(controls.output_ids), 0)
        logits[:too_early, list(controls.stop_token_ids)] = -math.inf
    if controls.logit_bias:
        bias = logits.new_tensor(list(controls.logit_bias.values()))
        logits[:, list(controls.logit_bias)] += bias
    if controls.repetition_penalty != 1 or controls.presence_penalty != 0 or controls.frequency_penalty != 0:
        _penalise(logits, controls, drafted)


def _forbid(logits: Tensor, allowed_mask: Tensor) -> None:
    restricted = (~allowed_mask.all(dim=1)).nonzero().squeeze(1)
    logits[restricted] = logits[restricted].masked_fill_(~allowed_mask[restricted], -math.inf)


def _forbid_bad_words(logits: Tensor, controls: TokenControls, drafted: Sequence[int]) -> None:
    longest = max(len(word) for word in controls.bad_words)
    # As in vLLM, a word is matched inside the output, never across the end of the prompt.
    output = [*controls.output_ids[-longest:], *drafted]
    for pos in range(len(logits)):
        before = output[: len(output) - len(drafted) + pos]
        for *start, last in controls.bad_words:
            if before[len(before) - len(start) :] == start:
                logits[pos, last] = -math.inf


def _penalise(logits: Tensor, controls: TokenControls, drafted: Sequence[int]) -> None:
    in_prompt = set(controls.prompt_ids) if controls.repetition_penalty != 1 else set()
    in_output = Counter(controls.output_ids)
    ids = sorted(in_prompt | set(in_output) | set(drafted))
    column = {token: index for index, token in enumerate(ids)}
    counts = logits.new_tensor([in_output[token] for token in ids]).repeat(len(logits), 1)
    for pos, token in enumerate(drafted):
        counts[pos + 1 :, column[token]] += 1
    seen = (counts > 0) | logits.new_tensor([token in in_prompt for token in ids]).bool()
    values = logits[:, ids]
    penalty = controls.repetition_penalty
    repeated = torch.where(values > 0, values / penalty, values * penalty)
    values = torch.where(seen, repeated, values)
    values -= controls.frequency_penalty * counts
    values -= controls.presence_penalty * (counts > 0)
    logits[:, ids] = values
