"""The autoregressive drafting loop: written once, for every model that drafts token by token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from foredraft.proposers.decoder import DraftDecoder, Tokens, to_device
from foredraft.proposers.draft_law import Drawn, confidence, draw
from foredraft.verifier import PADDING, SamplingBatch


@dataclass(frozen=True)
class DraftingRows:
    """R requests that draft now.

    Attributes:
        tokens: of each the committed tokens that the decoder has not read, up to the newest; at least one.
        states: [T, H], as in ``Decoder.forward``; ``None`` for a draft that reads no states.
        wanted: [R] >= 1, tokens to draft.
        sampling: of the R rows; ``None`` if all are greedy.
    """

    tokens: Tokens
    states: Tensor | None
    wanted: Sequence[int]
    sampling: SamplingBatch | None


@dataclass(frozen=True)
class DraftedRows:
    """What R rows drafted; the attributes as in ``Draft`` and ``DraftProbs``, ``None`` if all are greedy.

    Attributes:
        token_ids: [R, K] int64.
        lengths: [R] int64.
        probs, support_ids: [R, K, C].
    """

    token_ids: Tensor
    lengths: Tensor
    probs: Tensor | None
    support_ids: Tensor | None


@dataclass(frozen=True)
class _Step:
    """What the rows ``rows`` of R drew at one place of the draft; ``confident`` [R'] bool."""

    rows: list[int]
    drawn: Drawn
    confident: Tensor | None


def draft_tokens(
    decoder: DraftDecoder, head_ids: Tensor | None, rows: DraftingRows, min_confidence: float = 0.0
) -> DraftedRows:
    """Read the unread tokens, then draft one token after the other.

    Between the tokens nothing waits for the device. A row ends by ``wanted``, or before a token by the shape
    of that token's law: keeping a token never depends on the token itself, which would be lossy.

    Args:
        head_ids: [S] int64, the tokens that the first S logits of ``decoder.head`` stand for; further logits
            are padding. ``None`` = each logit's index.
        min_confidence: a row ends before a token whose law gives no token this probability; 0 = never.
    """
    live, sampling = list(range(len(rows.wanted))), rows.sampling
    hidden = decoder.forward(rows.tokens, states=rows.states)
    hidden = hidden[to_device(_last_places(rows.tokens.query_lens), hidden.device)]
    ends = [start + count for start, count in zip(rows.tokens.starts, rows.tokens.query_lens, strict=True)]
    tokens = Tokens(rows.tokens.token_ids, rows.tokens.row_ids, ends, [1] * len(live))
    steps: list[_Step] = []
    for offset in range(max(rows.wanted)):
        logits = decoder.head(hidden)
        if head_ids is not None:
            logits = logits[:, : len(head_ids)]
        confident = confidence(logits) >= min_confidence if min_confidence > 0 else None
        steps.append(_Step(live, draw(logits, head_ids, sampling, offset), confident))
        tokens = replace(tokens, token_ids=steps[-1].drawn.token_ids)
        staying = _staying(steps[-1], rows.wanted, offset + 1)
        if not staying:
            break
        if len(staying) < len(live):
            live = [live[place] for place in staying]
            places = to_device(staying, hidden.device)
            hidden, tokens = hidden[places], _select_tokens(tokens, staying, places)
            sampling = None if sampling is None else select_sampling(sampling, places, hidden.device)
        hidden = decoder.forward(tokens, states=None if rows.states is None else hidden)
        tokens = replace(tokens, starts=[start + 1 for start in tokens.starts])
    return _assemble(steps, len(rows.wanted))


def select_sampling(sampling: SamplingBatch, rows: Tensor, device: torch.device) -> SamplingBatch:
    """The sampling of some rows on another device, without the controls that only the target applies."""

    def moved(column: Tensor) -> Tensor:
        return column[rows].to(device)

    return SamplingBatch(
        temperature=moved(sampling.temperature),
        request_keys=moved(sampling.request_keys),
        block_starts=moved(sampling.block_starts),
        top_k=None if sampling.top_k is None else moved(sampling.top_k),
        top_p=None if sampling.top_p is None else moved(sampling.top_p),
        min_p=None if sampling.min_p is None else moved(sampling.min_p),
    )


def _staying(step: _Step, wanted: Sequence[int], drafted: int) -> list[int]:
    """Which of a step's rows draft on."""
    confident = [True] * len(step.rows)
    if step.confident is not None and step.confident.device.type == "cpu":
        confident = step.confident.tolist()  # elsewhere it would mean to wait; the tokens are cut off later
    return [place for place, row in enumerate(step.rows) if confident[place] and wanted[row] > drafted]


def _assemble(steps: Sequence[_Step], num_rows: int) -> DraftedRows:
    kept = torch.stack([_spread(step, _kept(step), num_rows, False) for step in steps], dim=1).cumprod(1)
    token_ids = torch.stack([_spread(step, step.drawn.token_ids, num_rows, PADDING) for step in steps], dim=1)
    probs = support_ids = None
    if steps[0].drawn.probs is not None:
        probs = torch.stack([_spread(step, step.drawn.probs, num_rows, 0.0) for step in steps], dim=1)
        support_ids = torch.stack(
            [_spread(step, step.drawn.support_ids, num_rows, 0) for step in steps], dim=1
        )
    return DraftedRows(token_ids.where(kept > 0, PADDING), kept.sum(1), probs, support_ids)


def _kept(step: _Step) -> Tensor:
    if step.confident is not None:
        return step.confident
    return torch.ones_like(step.drawn.token_ids, dtype=torch.bool)


def _spread(step: _Step, values: Tensor | None, num_rows: int, fill: float) -> Tensor:
    """Values of the step's rows, at their places among all rows."""
    assert values is not None, "either every step draws from laws or none does"
    if len(step.rows) == num_rows:
        return values
    spread = values.new_full((num_rows, *values.shape[1:]), fill)
    return spread.index_copy_(0, to_device(step.rows, values.device), values)


def _select_tokens(tokens: Tokens, staying: list[int], places: Tensor) -> Tokens:
    return Tokens(
        tokens.token_ids[places],
        [tokens.row_ids[place] for place in staying],
        [tokens.starts[place] for place in staying],
        [1] * len(staying),
    )


def _last_places(query_lens: Sequence[int]) -> list[int]:
    places, end = [], 0
    for count in query_lens:
        end += count
        places.append(end - 1)
    return places
