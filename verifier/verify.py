"""The verifier: which drafted tokens are kept, and which token follows them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from foredraft.verifier.blocks import row_chunks
from foredraft.verifier.choice import categorical_noise, greedy_tokens, pick_tokens
from foredraft.verifier.controls import process_logits
from foredraft.verifier.draft import PADDING, Draft, DraftProbs
from foredraft.verifier.drawn import DrawnRows, Rule, verify_drawn
from foredraft.verifier.random import Purpose
from foredraft.verifier.rows import MIN_TEMPERATURE, Layout, RowSampling, select_rows
from foredraft.verifier.sampling import SamplingBatch
from foredraft.verifier.truncation import target_probs, target_weights


@dataclass(frozen=True)
class Verdict:
    """What B requests emit in this step.

    Attributes:
        token_ids: [B, K + 1] int64: the accepted tokens, then one recovered or bonus token, then ``PADDING``.
            That last token is ``PADDING`` too where the controls forbid every token.
        num_accepted: [B] int64, accepted draft tokens.
    """

    token_ids: Tensor
    num_accepted: Tensor


def verify(target_logits: Tensor, draft: Draft, sampling: SamplingBatch, rule: Rule = "block") -> Verdict:
    """Check every request's draft against the target; the emitted tokens follow the target's law.

    Greedy requests keep drafts while they equal the target's likeliest token. A point-mass request (or an
    empty draft) keeps them while they equal the target's own token, drawn with noise that depends on request
    and position alone: it emits the same tokens for any draft. A drawn request is judged by ``rule``; for the
    same seed it repeats its tokens only if the draft lengths repeat.

    Args:
        target_logits: [N, V] any float dtype, N = sum(lengths + 1); not modified. Request b owns
            lengths[b] + 1 consecutive rows: after its newest committed token, its first draft token, ...
            Rows after a draft token of target probability 0 may hold anything.
        rule: "block" accepts at least as many tokens in expectation; "token" is Leviathan's.

    Raises:
        ValueError: shapes that do not fit together, or an unknown rule.
    """
    _check(target_logits, draft, sampling, rule)
    layout = Layout.of(draft.lengths, len(target_logits))
    logits = process_logits(target_logits, draft, sampling, layout)
    drawn = _drawn(draft, sampling)
    verdict = _verify_by_equality(_own_tokens(logits, layout, sampling, drawn), draft, layout)
    if bool(drawn.any()):
        rows = _drawn_rows(logits, draft, sampling, layout, drawn)
        accepted, last = verify_drawn(rows, rule)
        verdict.token_ids[drawn] = _emitted(rows.token_ids, accepted, last)
        verdict.num_accepted[drawn] = accepted
    return verdict


def _check(target_logits: Tensor, draft: Draft, sampling: SamplingBatch, rule: str) -> None:
    if rule not in ("block", "token"):
        raise ValueError(f"rule must be 'block' or 'token', got {rule!r}")
    batch_size = len(draft.lengths)
    for name, values in (
        ("draft.token_ids", draft.token_ids),
        ("sampling.temperature", sampling.temperature),
        ("sampling.request_keys", sampling.request_keys),
        ("sampling.block_starts", sampling.block_starts),
        ("sampling.controls", sampling.controls),
    ):
        if values is not None and len(values) != batch_size:
            raise ValueError(f"{name} has {len(values)} rows, draft.lengths has {batch_size}")
    mask = sampling.allowed_mask
    if mask is not None and mask.shape != target_logits.shape:
        shapes = f"{tuple(mask.shape)}, target_logits has {tuple(target_logits.shape)}"
        raise ValueError(f"sampling.allowed_mask has shape {shapes}")
    if draft.probs is not None:
        _check_probs(draft.probs, draft.token_ids.shape[1], target_logits.shape[1])


def _check_probs(probs: DraftProbs, num_places: int, vocab_size: int) -> None:
    support_ids = probs.support_ids
    width = vocab_size if support_ids is None else support_ids.shape[-1]
    expected = (len(probs.rows), num_places, width)
    if probs.probs.shape != expected:
        raise ValueError(f"draft.probs.probs has shape {tuple(probs.probs.shape)}, expected {expected}")
    if support_ids is not None and support_ids.dim() != 1 and support_ids.shape != expected:
        raise ValueError(f"draft.probs.support_ids has shape {tuple(support_ids.shape)}, expected {expected}")


def _drawn(draft: Draft, sampling: SamplingBatch) -> Tensor:
    """Which requests are judged by their draft's distribution, [B] bool."""
    drawn = torch.zeros_like(draft.lengths, dtype=torch.bool)
    if draft.probs is None:
        return drawn
    drawn[draft.probs.rows] = True
    return drawn & (draft.lengths > 0) & (sampling.temperature >= MIN_TEMPERATURE)


def _own_tokens(logits: Tensor, layout: Layout, sampling: SamplingBatch, drawn: Tensor) -> Tensor:
    """The target's own token after every prefix, [N] int64; ``PADDING`` in the rows of drawn requests."""
    greedy = sampling.temperature < MIN_TEMPERATURE
    others = greedy | drawn
    if len(logits) and not bool(others.any()):  # nothing to pick out
        return _sampled_tokens(logits, layout, sampling, slice(None))
    own = torch.full_like(layout.req_idx, PADDING)
    greedy_logits, rows = select_rows(logits, greedy[layout.req_idx])
    if len(rows):
        own[rows] = greedy_tokens(greedy_logits)
    sampled_logits, rows = select_rows(logits, ~others[layout.req_idx])
    if len(rows):
        own[rows] = _sampled_tokens(sampled_logits, layout, sampling, rows)
    return own


def _sampled_tokens(logits: Tensor, layout: Layout, sampling: SamplingBatch, rows: Tensor | slice) -> Tensor:
    """Draws from the laws of ``logits`` [n, V], which stand in ``rows`` of the layout: [n] int64."""
    req_idx = layout.req_idx[rows]
    positions = sampling.block_starts[req_idx] + layout.offset[rows]
    keys = sampling.request_keys[req_idx]
    noise = categorical_noise(logits.shape[1], keys, positions, torch.zeros_like(positions), Purpose.TARGET)
    controls = RowSampling.of(sampling, req_idx)
    tokens = [
        pick_tokens(target_weights(logits[chunk], controls.select(chunk)), noise[chunk])
        for chunk in row_chunks(logits)
    ]
    return torch.cat(tokens)


def _verify_by_equality(own: Tensor, draft: Draft, layout: Layout) -> Verdict:
    """Keep drafts while they equal the target's own tokens ``own`` [N]."""
    batch_size, num_places = draft.token_ids.shape
    token_ids = draft.token_ids.new_full((batch_size, num_places + 1), PADDING)
    token_ids[layout.req_idx, layout.offset] = own
    place = torch.arange(num_places + 1, device=own.device)
    equal = (token_ids[:, :-1] == draft.token_ids) & (place[:-1] < draft.lengths[:, None])
    accepted = equal.long().cumprod(1).sum(1)
    return Verdict(token_ids.masked_fill_(place > accepted[:, None], PADDING), accepted)


def _drawn_rows(
    logits: Tensor, draft: Draft, sampling: SamplingBatch, layout: Layout, drawn: Tensor
) -> DrawnRows:
    assert draft.probs is not None, "drawn requests come from draft.probs"
    req_idx = drawn.nonzero().squeeze(1)
    chosen, rows = select_rows(logits, drawn[layout.req_idx])
    lengths = draft.lengths[req_idx]
    return DrawnRows(
        token_ids=draft.token_ids[req_idx],
        lengths=lengths,
        draft_probs=draft.probs,
        entries=drawn[draft.probs.rows].nonzero().squeeze(1),
        target_probs=target_probs(chosen, RowSampling.of(sampling, layout.req_idx[rows])),
        first_row=(lengths + 1).cumsum(0) - lengths - 1,
        request_keys=sampling.request_keys[req_idx],
        block_starts=sampling.block_starts[req_idx],
    )


def _emitted(token_ids: Tensor, accepted: Tensor, last: Tensor) -> Tensor:
    """Draft tokens [R, K] cut after ``accepted`` [R], ``last`` [R] appended: [R, K + 1]."""
    place = torch.arange(token_ids.shape[1] + 1, device=accepted.device)
    widened = torch.cat((token_ids, last[:, None]), dim=1)
    kept = widened.masked_fill(place >= accepted[:, None], PADDING)
    return kept.scatter(1, accepted[:, None], last[:, None])
