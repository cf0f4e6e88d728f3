"""Through a draft server the output law is the target's, drafting ahead, late and lost drafts included.

Whole outputs, chi-square against the exact law of a table, alarm at p < 1e-6; fixed seeds. The same test must
flag a server that reports a law it did not draw from, and a deadline that looks at what was drawn.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from draft_service import LocalChannel, attached
from output_law import ALARM, chi_square_p, output_law
from toys import TableDecoder, make_engine

from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers.compact_laws import CompactLaws
from foredraft.proposers.draft_model import DraftModelProposer
from foredraft.proposers.remote_messages import DraftAhead, TargetCard
from foredraft.scheduler.draft_server import DraftServer, DraftServerOptions, HostedDraft, answers

VOCAB, START, LENGTH = 5, 3, 5
NUM_ROWS = 256
FEW = 8_000
TARGET = torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(1))
DRAFT = TARGET + 0.7 * torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(2))
Rule = Literal["block", "token"]
CONTROLS = {
    "temperature 1": SamplingParams(),
    "all": SamplingParams(temperature=1.3, top_k=4, top_p=0.9, min_p=0.1),
}


def law_engine(
    ahead: DraftAhead = "on", rule: Rule = "block", num_draft_tokens: int = 1
) -> tuple[EmbeddedEngine, LocalChannel]:
    """A draft of one token, so that short outputs have drafts that were drawn ahead."""
    hosted = HostedDraft(DraftModelProposer(TableDecoder(DRAFT, NUM_ROWS + 1, 16)), NUM_ROWS + 1, 16, VOCAB)
    channel = LocalChannel(DraftServer(hosted, DraftServerOptions(batch_tokens=10_000, gather_ms=0.0)))
    proposer = attached(channel, TargetCard("target", VOCAB, "", draft_ahead=ahead))
    decoder = TableDecoder(TARGET, NUM_ROWS, capacity=16)
    return make_engine(decoder, proposer, num_draft_tokens, rule=rule), channel


def p_value(engine: EmbeddedEngine, params: SamplingParams, num_outputs: int = FEW) -> float:
    params = params.model_copy(update={"n": 128, "max_tokens": LENGTH})
    finished = engine.generate([[START]] * math.ceil(num_outputs / 128), params)
    assert engine.metrics.num_proposer_faults == 0
    assert 0 < engine.metrics.num_accepted_tokens < engine.metrics.num_drafted_tokens
    counts = Counter(tuple(output.token_ids) for request in finished for output in request.outputs)
    return chi_square_p(counts, output_law(TARGET, START, params, LENGTH))


NUM_OUTPUTS = pytest.mark.parametrize("num_outputs", [FEW, pytest.param(100_000, marks=pytest.mark.slow)])


@NUM_OUTPUTS
@pytest.mark.parametrize("rule", ["block", "token"])
@pytest.mark.parametrize("params", CONTROLS.values(), ids=CONTROLS)
def test_drafting_ahead_leaves_the_law_alone(params: SamplingParams, rule: Rule, num_outputs: int) -> None:
    engine, channel = law_engine(rule=rule)
    assert p_value(engine, params, num_outputs) > ALARM
    counts = channel.server.counts
    assert counts.num_ahead_hits > 0.1 * counts.num_ahead_misses > 0


@NUM_OUTPUTS
def test_longer_drafts(num_outputs: int) -> None:
    engine, _ = law_engine("off", num_draft_tokens=3)
    assert p_value(engine, SamplingParams(), num_outputs) > ALARM


def without_some(channel: LocalChannel, chosen: Callable[[int], str | None]) -> None:
    """Let ``chosen`` decide, by the number of the message, what becomes of its answer."""
    honest = channel.draft

    def draft(request: object) -> object:
        channel.faults.append(chosen(len(channel.requests)))
        return honest(request)  # type: ignore[arg-type]

    channel.draft = draft  # type: ignore[assignment, method-assign]


@NUM_OUTPUTS
def test_late_and_lost_drafts_leave_the_law_alone(num_outputs: int) -> None:
    engine, channel = law_engine()
    proposer = engine.proposer
    proposer._link._pause = lambda reason: None  # type: ignore[union-attr]
    without_some(channel, lambda number: (None, None, "late", None, "lost")[number % 5])
    assert p_value(engine, SamplingParams(), num_outputs) > ALARM
    assert min(proposer.counts.num_late, proposer.counts.num_lost) > 5  # type: ignore[union-attr]


# ---- what is known to be wrong must be noticed


def test_a_law_that_was_not_drawn_from_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The drafts are drawn from truncated laws, and reported as if nothing had been cut off."""
    honest = answers.pack_laws

    def untruncated(rows: list[object], width: int) -> CompactLaws:
        laws = honest(rows, width)  # type: ignore[arg-type]
        flat = laws.probs + 0.15
        return CompactLaws(laws.token_ids, (flat / flat.sum(2, keepdims=True)).astype(np.float32))

    monkeypatch.setattr(answers, "pack_laws", untruncated)
    engine, _ = law_engine("off")
    assert p_value(engine, CONTROLS["all"]) < ALARM


def test_a_deadline_that_depends_on_what_was_drawn_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafts that came out unlikely arrive too late: the law is wrong, without any error."""
    honest = answers.answer_of

    def likely_ones(*args: object) -> object:
        answer = honest(*args)  # type: ignore[arg-type]
        if answer.laws is None:
            return answer
        unlikely = {
            handle
            for row, handle in enumerate(answer.law_handles)
            if answer.laws.token_ids[row, 0, 0] != answer.token_ids[handle][0]
        }
        kept = [row for row, handle in enumerate(answer.law_handles) if handle not in unlikely]
        return replace(
            answer,
            token_ids={one: ids for one, ids in answer.token_ids.items() if one not in unlikely},
            law_handles=tuple(answer.law_handles[row] for row in kept),
            laws=CompactLaws(answer.laws.token_ids[kept], answer.laws.probs[kept]) if kept else None,
        )

    monkeypatch.setattr("foredraft.scheduler.draft_server.core.answer_of", likely_ones)
    engine, _ = law_engine("off")
    assert p_value(engine, SamplingParams()) < ALARM
