"""The law a draft model reports is the law it draws from: exact against float64, then by drawing.

100 000 draws with different request keys, chi-square, alarm at p < 1e-6; fixed seeds.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

from foredraft.proposers.draft_law import MAX_CANDIDATES, confidence, draw
from foredraft.verifier import SamplingBatch
from foredraft.verifier.reference import reference_law

ALARM = 1e-6
OFF: dict[str, float] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
CONTROLS: dict[str, dict[str, float]] = {
    "temperature": {"temperature": 0.6},
    "top-k": {"top_k": 5},
    "top-k of one": {"top_k": 1},
    "top-p": {"top_p": 0.8},
    "min-p": {"min_p": 0.2},
    "all": {"temperature": 1.5, "top_k": 9, "top_p": 0.9, "min_p": 0.05},
}
# Each takes away what the one before it left, so that another order gives another law.
ORDERED = {"temperature": 2.0, "min_p": 0.3, "top_k": 6, "top_p": 0.75}


def random_logits(width: int, seed: int = 1, spread: float = 1.5) -> Tensor:
    return torch.randn(width, generator=torch.Generator().manual_seed(seed)) * spread


def sampling_of(num_rows: int, controls: dict[str, float], first_key: int = 0) -> SamplingBatch:
    """``num_rows`` requests that differ in nothing but their random stream."""
    values = OFF | controls

    def column(name: str, dtype: torch.dtype) -> Tensor | None:
        return None if values[name] == OFF[name] else torch.full((num_rows,), values[name], dtype=dtype)

    return SamplingBatch(
        temperature=torch.full((num_rows,), values["temperature"]),
        request_keys=torch.arange(first_key, first_key + num_rows),
        block_starts=torch.full((num_rows,), 7),
        top_k=column("top_k", torch.int64),
        top_p=column("top_p", torch.float32),
        min_p=column("min_p", torch.float32),
    )


def reported_law(logits: Tensor, controls: dict[str, float], head_ids: Tensor | None, size: int) -> Tensor:
    """The reported law over all ``size`` tokens, float64."""
    drawn = draw(logits[None], head_ids, sampling_of(1, controls), 0)
    assert drawn.probs is not None
    assert drawn.support_ids is not None
    assert drawn.probs.dtype == torch.float32
    assert len(set(drawn.support_ids[0].tolist())) == drawn.support_ids.shape[1]
    return torch.zeros(size, dtype=torch.float64).index_add_(0, drawn.support_ids[0], drawn.probs[0].double())


def expected_law(logits: Tensor, controls: dict[str, float], head_ids: Tensor | None, size: int) -> Tensor:
    """The float64 law of the ``MAX_CANDIDATES`` likeliest entries, at their token ids."""
    values: dict[str, Any] = OFF | controls
    cut = logits.clone()
    if len(logits) > MAX_CANDIDATES:
        cut[logits < logits.sort(descending=True).values[MAX_CANDIDATES - 1]] = -torch.inf
    law = reference_law(cut, values["temperature"], int(values["top_k"]), values["top_p"], values["min_p"])
    places = torch.arange(len(logits)) if head_ids is None else head_ids
    return torch.zeros(size, dtype=torch.float64).index_add_(0, places, law)


def p_value(token_ids: Tensor, law: Tensor) -> float:
    """How likely counts this far from the law are; drawing what cannot be drawn gives 0."""
    counts = torch.bincount(token_ids, minlength=len(law)).double()
    if bool((counts[law == 0] > 0).any()):
        return 0.0
    expected = law * len(token_ids)
    common = expected >= 5
    seen, needed = counts[common], expected[common]
    if bool((~common & (law > 0)).any()):
        seen = torch.cat((seen, counts[~common].sum()[None]))
        needed = torch.cat((needed, expected[~common].sum()[None]))
    if len(seen) == 1:
        return 1.0
    return float(chisquare(seen.numpy(), (needed * seen.sum() / needed.sum()).numpy()).pvalue)


@pytest.mark.parametrize("trimmed", [False, True])
@pytest.mark.parametrize("width", [12, 300])
@pytest.mark.parametrize("controls", [*CONTROLS.values(), ORDERED], ids=[*CONTROLS, "in order"])
def test_reported_law_is_the_requests_law(controls: dict[str, float], width: int, trimmed: bool) -> None:
    """Temperature, min-p, top-k and top-p, in that order, of the likeliest tokens (F11)."""
    head_ids = torch.arange(width) * 3 + 2 if trimmed else None
    logits = random_logits(width)
    law = reported_law(logits, controls, head_ids, 3 * width + 2)
    expected = expected_law(logits, controls, head_ids, 3 * width + 2)
    torch.testing.assert_close(law, expected, rtol=1e-5, atol=1e-7)
    assert bool(((law > 0) == (expected > 0)).all())


@pytest.mark.parametrize("controls", CONTROLS.values(), ids=CONTROLS)
@pytest.mark.parametrize("trimmed", [False, True])
def test_draws_follow_the_reported_law(controls: dict[str, float], trimmed: bool) -> None:
    head_ids = torch.arange(12) * 3 + 2 if trimmed else None
    logits = random_logits(12)
    drawn = draw(logits.expand(100_000, -1), head_ids, sampling_of(100_000, controls), 1)
    assert p_value(drawn.token_ids, reported_law(logits, controls, head_ids, 38)) > ALARM


def test_draws_from_a_large_vocabulary() -> None:
    """More tokens than candidates: what is left out is neither drawn nor reported."""
    logits = random_logits(1000)
    drawn = draw(logits.expand(20_000, -1), None, sampling_of(20_000, {}), 0)
    law = reported_law(logits, {}, None, 1000)
    assert int((law > 0).sum()) == MAX_CANDIDATES
    assert p_value(drawn.token_ids, law) > ALARM


def test_the_check_notices_another_law() -> None:
    """Its power: drawn at 0.9 does not pass for 1."""
    logits = random_logits(12)
    drawn = draw(logits.expand(100_000, -1), None, sampling_of(100_000, {"temperature": 0.9}), 0)
    assert p_value(drawn.token_ids, reported_law(logits, {}, None, 12)) < ALARM


def test_places_of_a_draft_are_drawn_independently() -> None:
    """F27: one random number for two places would couple their tokens."""
    logits = random_logits(4).expand(100_000, -1)
    first, second = (draw(logits, None, sampling_of(100_000, {}), place).token_ids for place in (0, 1))
    law = reported_law(logits[0], {}, None, 4)
    assert p_value(4 * first + second, torch.outer(law, law).flatten()) > ALARM


def test_every_row_has_its_own_controls() -> None:
    """A mixed batch: each row as if it were alone, greedy ones take the likeliest token (F23)."""
    rows = [{"temperature": 0.0}, {"top_k": 2}, {"temperature": 0.0}, {"min_p": 0.4}, {"top_p": 0.5}, {}]
    logits = torch.stack([random_logits(20, seed) for seed in range(len(rows))])
    alone = [
        draw(logits[row : row + 1], None, sampling_of(1, controls, first_key=row), 0)
        for row, controls in enumerate(rows)
    ]
    values = [OFF | controls for controls in rows]
    mixed = SamplingBatch(
        temperature=torch.tensor([one["temperature"] for one in values]),
        request_keys=torch.arange(len(rows)),
        block_starts=torch.full((len(rows),), 7),
        top_k=torch.tensor([int(one["top_k"]) for one in values]),
        top_p=torch.tensor([one["top_p"] for one in values]),
        min_p=torch.tensor([one["min_p"] for one in values]),
    )
    drawn = draw(logits, None, mixed, 0)
    assert drawn.probs is not None
    for row, one in enumerate(alone):
        assert one.probs is not None
        assert drawn.token_ids[row] == one.token_ids[0]
        torch.testing.assert_close(drawn.probs[row], one.probs[0])
    assert drawn.token_ids[[0, 2]].tolist() == logits[[0, 2]].argmax(1).tolist()


@pytest.mark.parametrize("head_ids", [None, torch.tensor([5, 8, 9, 30])])
def test_a_greedy_batch_takes_the_likeliest_token(head_ids: Tensor | None) -> None:
    logits = torch.stack([random_logits(4, seed) for seed in range(30)])
    drawn = draw(logits, head_ids, None, 0)
    places = logits.argmax(1)
    assert drawn.token_ids.tolist() == (places if head_ids is None else head_ids[places]).tolist()
    assert drawn.probs is None
    assert drawn.support_ids is None


@pytest.mark.parametrize(
    "controls", [{}, {"top_p": 0.5}, {"top_p": 1e-6}, {"min_p": 1.0}, {"temperature": 1e-4}]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_near_one_hot(controls: dict[str, float], dtype: torch.dtype) -> None:
    """The law stays a law, whatever rounding does."""
    logits = torch.full((9,), -80.0)
    logits[3] = 80.0
    drawn = draw(logits.to(dtype).expand(50, -1), None, sampling_of(50, controls), 0)
    assert set(drawn.token_ids.tolist()) == {3}
    assert drawn.probs is not None
    assert bool((drawn.probs[:, 0] == 1).all())
    assert bool((drawn.probs[:, 1:] == 0).all())


def test_confidence_is_the_largest_raw_probability() -> None:
    logits = torch.stack([random_logits(300, seed) for seed in range(5)])
    torch.testing.assert_close(confidence(logits), logits.softmax(-1).amax(-1))
    assert confidence(logits.bfloat16()).dtype == torch.float32


def test_a_greedy_row_among_others_takes_the_likeliest_of_near_ties() -> None:
    """Closer than the smallest temperature tells apart."""
    logits = torch.zeros(200, 5)
    logits[:, 3] = 1e-6
    mixed = SamplingBatch(
        temperature=torch.tensor([0.0] * 199 + [1.0]),
        request_keys=torch.arange(200),
        block_starts=torch.zeros(200, dtype=torch.int64),
    )
    assert set(draw(logits, None, mixed, 0).token_ids[:-1].tolist()) == {3}
