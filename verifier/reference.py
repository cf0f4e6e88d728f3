"""The plain verifier: one request and one position at a time, in float64. The fast one is tested on it."""

from __future__ import annotations

import torch
from torch import Tensor

from foredraft.verifier.choice import categorical
from foredraft.verifier.controls import process_logits
from foredraft.verifier.draft import PADDING, Draft, DraftProbs
from foredraft.verifier.drawn import Rule
from foredraft.verifier.random import Purpose, uniforms
from foredraft.verifier.rows import MIN_TEMPERATURE, Layout
from foredraft.verifier.sampling import SamplingBatch
from foredraft.verifier.verify import Verdict


def reference_law(logits: Tensor, temperature: float, top_k: int, top_p: float, min_p: float) -> Tensor:
    """The law of one token, [V] float64, from ``logits`` [V]; temperature > 0."""
    probs = torch.softmax(logits.double() / temperature, dim=0)
    probs[probs < min_p * probs.max()] = 0
    if 0 < top_k < len(probs):
        probs[logits < logits.sort(descending=True).values[top_k - 1]] = 0
    if top_p < 1:
        kept, total = 0.0, float(probs.sum())
        for token in probs.argsort(descending=True, stable=True).tolist():
            if kept >= top_p * total:
                probs[token] = 0
            kept += float(probs[token])
    return probs / probs.sum()


def reference_verify(
    target_logits: Tensor, draft: Draft, sampling: SamplingBatch, rule: Rule = "block"
) -> Verdict:
    """``verify``, request by request. Shares its noise, and its logit edits (tested on their own)."""
    layout = Layout.of(draft.lengths, len(target_logits))
    logits = process_logits(target_logits, draft, sampling, layout)
    token_ids = torch.full((len(draft.lengths), draft.token_ids.shape[1] + 1), PADDING)
    num_accepted = torch.zeros_like(draft.lengths)
    for req_idx, length in enumerate(draft.lengths.tolist()):
        start = int(layout.starts[req_idx])
        rows = logits[start : start + length + 1]
        emitted = _Request(rows, draft, sampling, req_idx).verify(rule)
        token_ids[req_idx, : len(emitted)] = torch.tensor(emitted)
        num_accepted[req_idx] = len(emitted) - 1
    return Verdict(token_ids, num_accepted)


class _Request:
    def __init__(self, logits: Tensor, draft: Draft, sampling: SamplingBatch, req_idx: int) -> None:
        self.logits = logits
        self.drafted: list[int] = draft.token_ids[req_idx, : len(logits) - 1].tolist()
        self.draft_probs = _dense_draft_probs(draft.probs, req_idx, len(self.drafted), logits.shape[1])
        self.temperature = float(sampling.temperature[req_idx])
        self.top_k = 0 if sampling.top_k is None else int(sampling.top_k[req_idx])
        self.top_p = 1.0 if sampling.top_p is None else float(sampling.top_p[req_idx])
        self.min_p = 0.0 if sampling.min_p is None else float(sampling.min_p[req_idx])
        self.key = sampling.request_keys[req_idx : req_idx + 1]
        self.block_start = int(sampling.block_starts[req_idx])

    def verify(self, rule: Rule) -> list[int]:
        if self.temperature < MIN_TEMPERATURE or self.draft_probs is None:
            return self._by_equality()
        ratios = self._ratios(self.draft_probs)
        if rule == "token":
            return self._token_rule(self.draft_probs, ratios)
        return self._block_rule(self.draft_probs, ratios)

    def _law(self, pos: int) -> Tensor:
        return reference_law(self.logits[pos], self.temperature, self.top_k, self.top_p, self.min_p)

    def _by_equality(self) -> list[int]:
        emitted: list[int] = []
        for pos, drafted in enumerate([*self.drafted, PADDING]):
            emitted.append(self._own_token(pos))
            if emitted[-1] != drafted:
                break
        return emitted

    def _own_token(self, pos: int) -> int:
        if self.temperature < MIN_TEMPERATURE:
            return int(self.logits[pos].argmax())
        return self._draw(self._law(pos), self.block_start + pos, 0, Purpose.TARGET)

    def _draw(self, weights: Tensor, position: int, offset: int, purpose: Purpose) -> int:
        place = torch.tensor([position]), torch.tensor([offset])
        return int(categorical(weights[None], self.key, *place, purpose))

    def _accepts(self, offset: int, probability: float) -> bool:
        place = torch.tensor([self.block_start]), torch.tensor([offset])
        return float(uniforms(self.key, *place, Purpose.ACCEPT, 1)) <= probability

    def _ratios(self, draft_probs: Tensor) -> list[float]:
        """target / draft probability of each drafted token; after a 0 nothing is looked at any more."""
        ratios = [0.0] * len(self.drafted)
        for pos, token in enumerate(self.drafted):
            target, draft = float(self._law(pos)[token]), float(draft_probs[pos, token])
            if target == 0 or draft == 0:
                break
            ratios[pos] = target / draft
        return ratios

    def _token_rule(self, draft_probs: Tensor, ratios: list[float]) -> list[int]:
        accepted = 0
        while accepted < len(ratios) and self._accepts(accepted, ratios[accepted]):
            accepted += 1
        return self._end_block(draft_probs, accepted, 1.0)

    def _block_rule(self, draft_probs: Tensor, ratios: list[float]) -> list[int]:
        running = [1.0]
        for ratio in ratios:
            running.append(min(running[-1] * ratio, 1.0))
        accepted = 0
        for length in range(1, len(ratios) + 1):
            if self._accepts(length - 1, self._acceptance(draft_probs, length, running[length])):
                accepted = length
        return self._end_block(draft_probs, accepted, running[accepted])

    def _acceptance(self, draft_probs: Tensor, length: int, scale: float) -> float:
        if length == len(self.drafted) or scale == 0:
            return scale
        mass = float((scale * self._law(length) - draft_probs[length]).clamp(min=0).sum())
        denominator = mass + 1 - scale
        return mass / denominator if denominator else 1.0

    def _end_block(self, draft_probs: Tensor, accepted: int, scale: float) -> list[int]:
        weights = self._law(accepted)
        if accepted < len(self.drafted):
            residual = (scale * weights - draft_probs[accepted]).clamp(min=0)
            weights = residual if residual.sum() > 0 else weights
        last = self._draw(weights, self.block_start, accepted, Purpose.RECOVER)
        return [*self.drafted[:accepted], last]


def _dense_draft_probs(probs: DraftProbs | None, req_idx: int, length: int, vocab_size: int) -> Tensor | None:
    """[length, V] float64; ``None`` for a point mass or an empty draft."""
    if probs is None or length == 0 or req_idx not in probs.rows.tolist():
        return None
    entry = probs.rows.tolist().index(req_idx)
    reported = probs.probs[entry, :length].double()
    if probs.support_ids is None:
        return reported
    support = probs.support_ids.expand_as(probs.probs)[entry, :length]
    return torch.zeros(length, vocab_size, dtype=torch.float64).scatter_add_(1, support, reported)
