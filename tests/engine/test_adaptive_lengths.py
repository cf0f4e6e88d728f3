"""Draft lengths that change from step to step: what they may not change, and what zero must not cost."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import pytest
import torch
from drawing import DrawingProposer
from erratic import Erratic
from output_law import ALARM, Output, chi_square_p, output_law
from toys import ScriptedProposer, TableDecoder, oracle_of, random_prompts, run_tokens, toy_decoder

from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers import DraftContext, Proposer
from foredraft.proposers.auto import AutoProposer
from foredraft.proposers.merged_draft import merged_draft
from foredraft.proposers.ngram import NgramProposer
from foredraft.scheduler.speculation import (
    AdaptiveDraftLength,
    DraftLengthController,
    Member,
    StepReport,
)
from foredraft.verifier import Draft

VOCAB, START = 8, 5
TARGET = torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(1))
DRAFT = torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(2))
GREEDY = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)


class Clocked(AdaptiveDraftLength):
    """The controller under a clock that is made up, so that a run repeats."""

    def __init__(self, max_draft_tokens: int, token_s: float, draft_s: float, num_members: int = 1) -> None:
        super().__init__([Member(str(place), max_draft_tokens, 3) for place in range(num_members)])
        self._token_s, self._draft_s = token_s, draft_s

    def observe(self, report: StepReport) -> None:
        propose_s = [self._draft_s * max(report.choice.lengths)] * len(self.members)
        target_s = 1 + self._token_s * report.num_tokens
        step_s = sum(propose_s) + target_s
        super().observe(replace(report, propose_s=propose_s, target_s=target_s, step_s=step_s))


class Peeking(DrawingProposer):
    """Ends a draft before a token it has drawn and finds unlikely: lossy, a negative control."""

    def propose(self, context: DraftContext) -> Draft:
        draft = super().propose(context)
        unlikely = torch.isin(draft.token_ids, torch.tensor([0, 1, 2]))
        lengths = (~unlikely).cumprod(1).sum(1).minimum(draft.lengths)
        places = torch.arange(draft.token_ids.shape[1])
        return replace(draft, lengths=lengths, token_ids=draft.token_ids.where(places < lengths[:, None], -1))


def draw(
    proposer: Proposer,
    controller: DraftLengthController,
    num_outputs: int = 20_000,
    rule: Literal["block", "token"] = "block",
    length: int = 4,
) -> tuple[Counter[Output], EmbeddedEngine]:
    engine = EmbeddedEngine(TableDecoder(TARGET, num_rows=256, capacity=8), proposer, controller, rule=rule)
    params = SamplingParams(n=128, max_tokens=length)
    finished = engine.generate([(START,)] * (num_outputs // 128), params)
    assert engine.metrics.num_proposer_faults == 0
    outputs = [tuple(one.token_ids) for request in finished for one in request.outputs]
    return Counter(outputs), engine


LAW = output_law(TARGET, START, SamplingParams(), 4)


@pytest.mark.parametrize("rule", ["block", "token"])
@pytest.mark.parametrize("costs", [(0.001, 0.02), (0.004, 0.1)], ids=["cheap", "dear"])
def test_the_law_with_lengths_that_adapt(costs: tuple[float, float], rule: Literal["block", "token"]) -> None:
    counts, engine = draw(DrawingProposer(DRAFT), Clocked(3, *costs), rule=rule)
    assert len(engine.metrics.length_counts) > 1, "F119: the length does change"
    assert engine.metrics.num_drafted_tokens > 1_000
    assert chi_square_p(counts, LAW) > ALARM


@pytest.mark.parametrize(
    "proposer", [DrawingProposer(DRAFT), DrawingProposer(DRAFT, "mixed"), NgramProposer(1, 3)]
)
def test_the_law_with_lengths_that_hang_on_outcomes(proposer: Proposer) -> None:
    counts, engine = draw(proposer, Erratic(3))
    assert len(engine.metrics.length_counts) > 2
    assert chi_square_p(counts, LAW) > ALARM


def test_a_length_that_hangs_on_the_drawn_token_is_flagged() -> None:
    counts, _ = draw(Peeking(DRAFT), Clocked(3, 0.001, 0.02))
    assert chi_square_p(counts, LAW) < ALARM


@pytest.mark.parametrize("controller", ["adaptive", "erratic"])
def test_greedy_output_is_that_of_plain_decoding(controller: str) -> None:
    prompts = random_prompts(8)
    expected = run_tokens(EmbeddedEngine(toy_decoder(), None, Erratic(0)), prompts, GREEDY)
    runs = [prompt + output for prompt, output in zip(prompts, expected, strict=True)]
    proposer = ScriptedProposer(oracle_of(runs), num_right=2)
    chosen = Clocked(5, 0.01, 0.05) if controller == "adaptive" else Erratic(5)
    engine = EmbeddedEngine(toy_decoder(), proposer, chosen)
    assert run_tokens(engine, prompts, GREEDY) == expected
    assert len(engine.metrics.length_counts) > 2
    assert engine.metrics.num_accepted_tokens > 0


class Unwanted(Proposer):
    """Nobody may call it."""

    def propose(self, context: DraftContext) -> Draft:
        raise AssertionError("nothing was to be drafted")

    def release(self, request_id: str, reason: object) -> None:
        pass


def test_zero_calls_no_proposer() -> None:
    """F115, F117: zero is plain decoding: the proposer is not asked, no pass is wider."""
    engine = EmbeddedEngine(toy_decoder(), Unwanted(), Clocked(4, 0.01, 0.05))
    off = GREEDY.model_copy(update={"num_draft_tokens": 0})
    prompts = random_prompts(6)
    assert run_tokens(engine, prompts, off) == run_tokens(
        EmbeddedEngine(toy_decoder(), None, Erratic(0)), prompts, GREEDY
    )
    assert engine.metrics.num_proposer_faults == 0
    assert engine.metrics.num_drafted_tokens == 0
    assert set(engine.metrics.length_counts) == {0}


def test_hopeless_drafts_are_given_up() -> None:
    """F119, F159: drafts that are always wrong are left out, but for probes."""
    prompts = random_prompts(4)
    params = GREEDY.model_copy(update={"max_tokens": 100})
    proposer = ScriptedProposer(lambda tokens: [tokens[-1]] * 9, num_right=0)
    engine = EmbeddedEngine(toy_decoder(), proposer, Clocked(5, 0.05, 0.1))
    run_tokens(engine, prompts, params)
    counts = engine.metrics.length_counts
    assert counts[0] > 0.9 * counts.total()
    assert 0 < engine.metrics.num_probes < 0.1 * counts.total()


def test_each_request_has_its_own_limit() -> None:
    prompts = random_prompts(3)
    expected = run_tokens(EmbeddedEngine(toy_decoder(), None, Erratic(0)), prompts, GREEDY)
    runs = [prompt + output for prompt, output in zip(prompts, expected, strict=True)]
    proposer = ScriptedProposer(oracle_of(runs))
    engine = EmbeddedEngine(toy_decoder(), proposer, Clocked(5, 0.001, 0.001))
    limits = [GREEDY.model_copy(update={"num_draft_tokens": limit}) for limit in (0, 2, None)]
    assert run_tokens(engine, prompts, limits) == expected
    longest = {
        name: max(outcome.num_drafted for outcome in proposer.outcomes if outcome.request_id.startswith(name))
        for name in ("generate-0", "generate-1", "generate-2")
    }
    assert longest["generate-0"] == 0
    assert longest["generate-1"] == 2
    assert longest["generate-2"] > 2


def test_the_metrics_say_what_was_promised() -> None:
    engine = EmbeddedEngine(toy_decoder(), NgramProposer(1, 3), Clocked(4, 0.01, 0.01))
    run_tokens(engine, random_prompts(2), GREEDY)
    assert engine.metrics.predicted_tokens_per_s is not None
    assert engine.metrics.predicted_tokens_per_s > 0
    assert len(engine.controller._requests) == 0, "every request was released"  # type: ignore[attr-defined]


# ---- several proposers


def both(form: str = "dense") -> AutoProposer:
    return AutoProposer({"model": DrawingProposer(DRAFT, form), "look-up": NgramProposer(1, 3)})


@pytest.mark.parametrize("rule", ["block", "token"])
@pytest.mark.parametrize("controller", ["adaptive", "erratic"])
def test_the_law_with_proposers_that_switch(controller: str, rule: Literal["block", "token"]) -> None:
    """Whether the switch follows what pays, or each request's last token and outcome."""
    chosen = Clocked(3, 0.001, 0.01, num_members=2) if controller == "adaptive" else Erratic(3, 2)
    proposer = AutoProposer({"one": DrawingProposer(DRAFT), "two": DrawingProposer(TARGET.flip(0), "shared")})
    counts, engine = draw(proposer, chosen, rule=rule)
    assert len(engine.metrics.member_counts) == 2
    assert chi_square_p(counts, LAW) > ALARM


def test_the_law_with_a_look_up_beside_a_model() -> None:
    counts, engine = draw(both(), Erratic(3, 2))
    assert min(engine.metrics.member_counts.values()) > 1_000
    assert chi_square_p(counts, LAW) > ALARM


class Choosy(AutoProposer):
    """Asks both members, and takes the draft whose first token it likes better: lossy, a negative control."""

    def propose(self, context: DraftContext) -> Draft:
        first, second = (
            member.propose(context) if any(context.max_draft_tokens) else None for member in self.members
        )
        assert first is not None
        assert second is not None
        likes = (first.token_ids[:, 0] >= second.token_ids[:, 0]).long()
        return merged_draft({1: first, 0: second}, likes)


def test_a_choice_between_drawn_drafts_is_flagged() -> None:
    proposer = Choosy({"one": DrawingProposer(DRAFT), "two": DrawingProposer(TARGET.flip(0))})
    counts, _ = draw(proposer, Erratic(3))
    assert chi_square_p(counts, LAW) < ALARM


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["block", "token"])
def test_100_000_outputs_with_lengths_and_proposers_that_change(rule: Literal["block", "token"]) -> None:
    proposer = AutoProposer({"one": DrawingProposer(DRAFT), "two": DrawingProposer(TARGET.flip(0), "shared")})
    counts, _ = draw(proposer, Erratic(3, 2), num_outputs=100_096, rule=rule)
    assert chi_square_p(counts, LAW) > ALARM


@pytest.mark.slow
def test_100_000_outputs_of_the_adaptive_controller() -> None:
    counts, _ = draw(both(), Clocked(3, 0.001, 0.01, num_members=2), num_outputs=100_096)
    assert chi_square_p(counts, LAW) > ALARM


def test_greedy_output_with_several_proposers_is_that_of_plain_decoding() -> None:
    prompts = random_prompts(8)
    expected = run_tokens(EmbeddedEngine(toy_decoder(), None, Erratic(0)), prompts, GREEDY)
    runs = [prompt + output for prompt, output in zip(prompts, expected, strict=True)]
    for chosen in (Clocked(5, 0.01, 0.05, num_members=2), Erratic(5, 2)):
        proposer = AutoProposer(
            {"scripted": ScriptedProposer(oracle_of(runs), num_right=2), "look-up": NgramProposer(1, 3)}
        )
        engine = EmbeddedEngine(toy_decoder(), proposer, chosen)
        assert run_tokens(engine, prompts, GREEDY) == expected
        assert engine.metrics.num_proposer_faults == 0


def test_prospects_that_fail_cost_nothing_but_drafts() -> None:
    class Broken(NgramProposer):
        def prospects(self, request_ids: Sequence[str], token_ids: Sequence[Sequence[int]]) -> Sequence[int]:
            raise RuntimeError("out of order")

    prompts = random_prompts(3)
    engine = EmbeddedEngine(toy_decoder(), Broken(1, 3), Clocked(4, 0.01, 0.01))
    expected = run_tokens(EmbeddedEngine(toy_decoder(), None, Erratic(0)), prompts, GREEDY)
    assert run_tokens(engine, prompts, GREEDY) == expected
    assert engine.metrics.num_proposer_faults > 0
    assert engine.metrics.num_drafted_tokens == 0
