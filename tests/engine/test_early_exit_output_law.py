"""An early exit changes no output law, through the whole engine and real layers.

Whole outputs of a tiny model, chi-square against the exact law (transformers' logits after every possible
beginning), alarm at p < 1e-6; fixed seeds. The default suite draws 4 000 outputs, the slow one 100 000. The
same test must flag a law that is reported and was not drawn from.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections import Counter
from typing import Literal

import pytest
import torch
from output_law import ALARM, Output, chi_square_p
from toy_exits import reads_states, trained_exit, trained_head
from toys import make_engine
from transformers import LlamaConfig, LlamaForCausalLM

from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.embedded.exit_decoder import ExitDecoder
from foredraft.integration.embedded.exit_head import ExitHead, OwnHead, TrainedHead
from foredraft.integration.embedded.forward import prepare_model
from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers import drafting
from foredraft.proposers.draft_law import Drawn, draw
from foredraft.proposers.early_exit import MOST_UNREAD, EarlyExitProposer
from foredraft.verifier import SamplingBatch
from foredraft.verifier.reference import reference_law

VOCAB, START = 6, [5]
NUM_ROWS = 512
LENGTH = 3
FEW = 4_000
Rule = Literal["block", "token"]
CONTROLS = {
    "temperature 1": SamplingParams(),
    "all": SamplingParams(temperature=1.3, top_k=5, top_p=0.9, min_p=0.1),
}


def tiny_model() -> LlamaForCausalLM:
    torch.manual_seed(2)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=32,
        initializer_range=0.35,
    )
    return LlamaForCausalLM(config).eval().requires_grad_(False)


MODEL = tiny_model()
TARGET = prepare_model(copy.deepcopy(MODEL))
HEAD_IDS = torch.tensor([1, 2, 4])
FILES = {
    "trained": trained_exit(MODEL, 1),
    "trained, reads states": trained_exit(MODEL, 2, reads_states=True),
    "trained, trimmed": trained_exit(MODEL, 1, reads_states=True, head_ids=HEAD_IDS),
}
HEADS: dict[str, ExitHead] = {"own": OwnHead(TARGET, 1)} | {
    name: trained_head(file, TARGET) for name, file in FILES.items()
}


def exact_law(params: SamplingParams) -> dict[Output, float]:
    """The probability of every possible output."""
    law: dict[Output, float] = {(): 1.0}
    for length in range(LENGTH):
        beginnings = list(itertools.product(range(VOCAB), repeat=length))
        logits = MODEL(torch.tensor([[*START, *one] for one in beginnings])).logits[:, -1]
        for beginning, row in zip(beginnings, logits, strict=True):
            probability = law.pop(beginning, 0.0)
            after = reference_law(row, params.temperature, params.top_k, params.top_p, params.min_p)
            for token, share in enumerate(after.tolist()):
                if probability * share > 0:
                    law[*beginning, token] = probability * share
    return law


def law_engine(name: str, rule: Rule = "block", min_confidence: float = 0.0) -> EmbeddedEngine:
    head = HEADS[name]
    target = SlotDecoder(
        TARGET,
        NUM_ROWS,
        8,
        32,
        VOCAB,
        keep_states=MOST_UNREAD if reads_states(head) else 0,
        exit_head=head if isinstance(head, TrainedHead) else None,
    )
    proposer = EarlyExitProposer(
        ExitDecoder(target, head),
        FILES[name].head_ids if name in FILES else None,
        reads_states=reads_states(head),
        min_confidence=min_confidence,
    )
    return make_engine(target, proposer, LENGTH, rule=rule)


def p_value(engine: EmbeddedEngine, params: SamplingParams, num_outputs: int) -> float:
    """One token of prompt, so that the very first step drafts a block of the whole output."""
    many = params.model_copy(update={"n": 128, "max_tokens": LENGTH})
    finished = engine.generate([START] * math.ceil(num_outputs / 128), many)
    metrics = engine.metrics
    assert metrics.num_proposer_faults == 0
    assert len(metrics.verified_per_position) == LENGTH - 1
    assert 0 < metrics.num_accepted_tokens < metrics.num_drafted_tokens
    counts = Counter(tuple(output.token_ids) for request in finished for output in request.outputs)
    return chi_square_p(counts, exact_law(params))


FEW_OF = [("own", "token", "all"), ("trained, reads states", "block", "temperature 1")]
MANY_OF = itertools.product(("own", "trained", "trained, reads states"), ("block", "token"), CONTROLS)


@pytest.mark.parametrize(
    ("name", "rule", "controls", "num_outputs"),
    [
        *((*one, FEW) for one in FEW_OF),
        *(pytest.param(*one, 100_000, marks=pytest.mark.slow) for one in MANY_OF),
    ],
)
def test_the_law_is_the_targets(name: str, rule: Rule, controls: str, num_outputs: int) -> None:
    """F11, F15, F17, F21."""
    assert p_value(law_engine(name, rule), CONTROLS[controls], num_outputs) > ALARM


@pytest.mark.parametrize(
    ("name", "rule", "min_confidence", "num_outputs"),
    [
        ("trained, trimmed", "block", 0.0, FEW),
        ("trained", "token", 0.4, FEW),
        pytest.param("trained, trimmed", "token", 0.0, 100_000, marks=pytest.mark.slow),
        pytest.param("trained", "block", 0.4, 100_000, marks=pytest.mark.slow),
        pytest.param("trained, reads states", "token", 0.33, 100_000, marks=pytest.mark.slow),
    ],
)
def test_with_a_trimmed_head_or_a_confidence_stop(
    name: str, rule: Rule, min_confidence: float, num_outputs: int
) -> None:
    """One head knows tokens 1, 2 and 4 alone. The stop looks at the law's shape, never at the token."""
    engine = law_engine(name, rule, min_confidence=min_confidence)
    assert p_value(engine, SamplingParams(), num_outputs) > ALARM
    verified = engine.metrics.verified_per_position
    assert min_confidence == 0 or 0 < verified[1] < 0.9 * verified[0]


def test_greedy_and_drawing_requests_together() -> None:
    """F13, F23: each by its own rule in one batch."""
    engine = law_engine("trained, reads states")
    drawing = SamplingParams(n=64, max_tokens=LENGTH, temperature=0.8)
    greedy = SamplingParams(n=2, max_tokens=LENGTH, temperature=0)
    finished = engine.generate([START] * 60, [drawing, greedy] * 30)
    counts = Counter(tuple(one.token_ids) for request in finished[::2] for one in request.outputs)
    assert chi_square_p(counts, exact_law(drawing)) > ALARM
    likeliest = list(START)
    for _ in range(LENGTH):
        likeliest.append(int(MODEL(torch.tensor([likeliest])).logits[0, -1].argmax()))
    assert all(one.token_ids == likeliest[1:] for request in finished[1::2] for one in request.outputs)


@pytest.mark.parametrize("rule", ["block", "token"])
@pytest.mark.parametrize("params", CONTROLS.values(), ids=CONTROLS)
def test_leaving_after_the_last_layer_is_accepted_whole(params: SamplingParams, rule: Rule) -> None:
    """Drawn from the target's own law, under every control."""
    target = SlotDecoder(TARGET, NUM_ROWS, 8, 32, VOCAB)
    proposer = EarlyExitProposer(ExitDecoder(target, OwnHead(TARGET, TARGET.num_layers)))
    engine = make_engine(target, proposer, LENGTH, rule=rule)
    engine.generate([START] * 4, params.model_copy(update={"n": 64, "max_tokens": 4}))
    assert engine.metrics.num_drafted_tokens == 4 * 64 * 3
    assert engine.metrics.num_accepted_tokens == engine.metrics.num_drafted_tokens


def raw_law(
    logits: torch.Tensor, head_ids: torch.Tensor | None, sampling: SamplingBatch, offset: int
) -> Drawn:
    """Drawn from the processed law, reported as the softmax of the raw logits."""
    drawn = draw(logits, head_ids, sampling, offset)
    places = logits.topk(logits.shape[1]).indices
    return Drawn(drawn.token_ids, logits.softmax(-1).gather(1, places), drawn.support_ids)


def test_a_wrong_law_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafting, "draw", raw_law)
    assert p_value(law_engine("own"), CONTROLS["all"], FEW) < ALARM
