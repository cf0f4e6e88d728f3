"""A draft model of another law than the target's changes no output law, through the whole engine.

Whole outputs, chi-square against the exact law of a table, alarm at p < 1e-6; fixed seeds. The default suite
draws 4 000 outputs for some pairs of law and rule, the slow one 100 000 for all. The same test must flag a
proposer that reports another law than it draws from.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Literal

import pytest
import torch
from output_law import ALARM, Output, chi_square_p, output_law
from torch import Tensor
from toys import TableDecoder, make_engine

from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers import drafting
from foredraft.proposers.draft_law import Drawn, draw
from foredraft.proposers.draft_model import DraftModelProposer
from foredraft.verifier import SamplingBatch

VOCAB, START = 8, 5
NUM_ROWS = 512
Rule = Literal["block", "token"]
RULES = pytest.mark.parametrize("rule", ["block", "token"])
FEW = 4_000
CONTROLS = {
    "temperature 1": SamplingParams(),
    "temperature 0.7": SamplingParams(temperature=0.7),
    "top-k": SamplingParams(top_k=3),
    "top-p": SamplingParams(top_p=0.8),
    "all": SamplingParams(temperature=1.3, top_k=5, top_p=0.9, min_p=0.1),
}


def random_table(seed: int) -> Tensor:
    return torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(seed))


def sizes(*rules: Rule) -> pytest.MarkDecorator:
    """Rule, length and number of outputs: few outputs in the default suite, many in the slow one."""
    slow = [pytest.param(rule, 4, 100_000, marks=pytest.mark.slow) for rule in rules]
    few = [(rule, 3, FEW) for rule in rules]
    return pytest.mark.parametrize(("rule", "length", "num_outputs"), [*few, *slow])


TARGET, DRAFT = random_table(1), random_table(2)


def law_engine(
    rule: Rule = "block",
    draft: Tensor = DRAFT,
    head_ids: Tensor | None = None,
    min_confidence: float = 0.0,
) -> EmbeddedEngine:
    proposer = DraftModelProposer(
        TableDecoder(draft, NUM_ROWS, capacity=8), head_ids, min_confidence=min_confidence
    )
    return make_engine(TableDecoder(TARGET, NUM_ROWS, capacity=8), proposer, 3, rule=rule)


def draw_outputs(
    engine: EmbeddedEngine, params: SamplingParams, length: int, num_outputs: int
) -> Counter[Output]:
    """One token of prompt, so that the very first step drafts a block of the whole output."""
    params = params.model_copy(update={"n": 128, "max_tokens": length})
    finished = engine.generate([[START]] * math.ceil(num_outputs / 128), params)
    assert engine.metrics.num_proposer_faults == 0
    assert len(engine.metrics.verified_per_position) == length - 1
    assert 0 < engine.metrics.num_accepted_tokens < engine.metrics.num_drafted_tokens
    return Counter(tuple(output.token_ids) for request in finished for output in request.outputs)


def p_value(engine: EmbeddedEngine, params: SamplingParams, length: int, num_outputs: int) -> float:
    counts = draw_outputs(engine, params, length, num_outputs)
    return chi_square_p(counts, output_law(TARGET, START, params, length))


@sizes("block", "token")
@pytest.mark.parametrize("params", CONTROLS.values(), ids=CONTROLS)
def test_the_law_is_the_targets(params: SamplingParams, rule: Rule, length: int, num_outputs: int) -> None:
    """F11, F15, F17."""
    assert p_value(law_engine(rule), params, length, num_outputs) > ALARM


@sizes("block")
def test_with_a_trimmed_head(rule: Rule, length: int, num_outputs: int) -> None:
    """A draft that knows tokens 1, 2, 4 and 7 alone; its other logits are padding."""
    engine = law_engine(rule, head_ids=torch.tensor([1, 2, 4, 7]))
    assert p_value(engine, SamplingParams(), length, num_outputs) > ALARM


@sizes("token")
def test_with_a_confidence_stop(rule: Rule, length: int, num_outputs: int) -> None:
    """It looks at the shape of the law before a token is drawn, never at the token."""
    engine = law_engine(rule, min_confidence=0.35)
    assert p_value(engine, SamplingParams(), length, num_outputs) > ALARM
    verified = engine.metrics.verified_per_position
    assert 0 < verified[1] < 0.9 * verified[0]


def test_greedy_and_drawing_requests_together() -> None:
    """F13, F23: each by its own rule in one batch."""
    engine = law_engine()
    drawing = SamplingParams(n=64, max_tokens=3, temperature=0.8)
    greedy = SamplingParams(n=2, max_tokens=3, temperature=0)
    finished = engine.generate([[START]] * 120, [drawing, greedy] * 60)
    counts = Counter(tuple(one.token_ids) for request in finished[::2] for one in request.outputs)
    assert chi_square_p(counts, output_law(TARGET, START, drawing, 3)) > ALARM
    likeliest, token = [], START
    for _ in range(3):
        token = int(TARGET[token].argmax())
        likeliest.append(token)
    assert all(one.token_ids == likeliest for request in finished[1::2] for one in request.outputs)


@RULES
@pytest.mark.parametrize("params", CONTROLS.values(), ids=CONTROLS)
def test_a_draft_equal_to_the_target_is_accepted_whole(params: SamplingParams, rule: Rule) -> None:
    """At every temperature and truncation: both sides process alike."""
    engine = law_engine(rule, draft=TARGET)
    engine.generate([[START]] * 4, params.model_copy(update={"n": 64, "max_tokens": 4}))
    assert engine.metrics.num_drafted_tokens == 4 * 64 * 3
    assert engine.metrics.num_accepted_tokens == engine.metrics.num_drafted_tokens


# ---- what is known to be wrong must be noticed


def raw_law(logits: Tensor, head_ids: Tensor | None, sampling: SamplingBatch | None, offset: int) -> Drawn:
    """Drawn from the processed law, reported as the softmax of the raw logits."""
    drawn = draw(logits, head_ids, sampling, offset)
    assert drawn.support_ids is not None
    return Drawn(drawn.token_ids, logits.softmax(-1).gather(1, drawn.support_ids), drawn.support_ids)


def argmax_as_soft(
    logits: Tensor, head_ids: Tensor | None, sampling: SamplingBatch | None, offset: int
) -> Drawn:
    """The likeliest token, reported as drawn."""
    drawn = draw(logits, head_ids, sampling, offset)
    return Drawn(logits.argmax(1), drawn.probs, drawn.support_ids)


def one_stream(logits: Tensor, head_ids: Tensor | None, sampling: SamplingBatch | None, offset: int) -> Drawn:
    """The same random number at every place of a draft."""
    return draw(logits, head_ids, sampling, 0)


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        (raw_law, "block"),
        (raw_law, "token"),
        (argmax_as_soft, "block"),
        (one_stream, "token"),
    ],
)
def test_wrong_draws_are_flagged(wrong: object, rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafting, "draw", wrong)
    params = CONTROLS["all"] if wrong is raw_law else CONTROLS["temperature 1"]
    assert p_value(law_engine(rule), params, 3, FEW) < ALARM


def test_stopping_by_the_drawn_tokens_own_probability_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why the confidence stop must not look at the token."""
    probability = iter(())

    def noted(logits: Tensor, *args: object) -> Drawn:
        nonlocal probability
        drawn = draw(logits, *args)  # type: ignore[arg-type]
        probability = logits.softmax(-1).gather(1, drawn.token_ids[:, None]).squeeze(1)
        return drawn

    honest = drafting._Step
    monkeypatch.setattr(drafting, "draw", noted)
    monkeypatch.setattr(drafting, "_Step", lambda rows, drawn, _: honest(rows, drawn, probability >= 0.2))
    assert p_value(law_engine(min_confidence=0.2), SamplingParams(), 3, FEW) < ALARM
