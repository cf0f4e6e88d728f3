"""``--explain``: what is said of the lengths that were chosen."""

import sys

import pytest
from toys import ScriptedProposer, oracle_of, random_prompts, run_tokens, toy_decoder

from foredraft.integration.cli_explain import explain_decisions, lengths_summary
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers.auto import AutoProposer
from foredraft.proposers.ngram import NgramProposer
from foredraft.scheduler.speculation import AdaptiveDraftLength, FixedDraftLength, Member

GREEDY = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)


def test_plans_and_the_sum_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    prompts = random_prompts(2)
    plain = run_tokens(EmbeddedEngine(toy_decoder(), None, FixedDraftLength(0)), prompts, GREEDY)
    oracle = oracle_of([prompt + output for prompt, output in zip(prompts, plain, strict=True)])
    proposer = AutoProposer({"oracle": ScriptedProposer(oracle), "ngram": NgramProposer(1, 2)})
    members = [Member("oracle", 4), Member("ngram", 4, 2)]
    engine = EmbeddedEngine(toy_decoder(), proposer, AdaptiveDraftLength(members))
    assert lengths_summary(engine) == "explain: nothing could be drafted"
    explain_decisions(engine, "mine")
    run_tokens(engine, prompts, GREEDY)
    said = capsys.readouterr().err
    assert said.startswith("explain mine: step ")
    assert "accepted by place: oracle " in said
    assert "ngram/2 " in said
    assert "each alone: oracle " in said
    summary = lengths_summary(engine, "mine")
    assert "explain mine: draft tokens chosen (length: times) 0: " in summary
    assert f"drafts of oracle: {engine.metrics.member_counts[0]}, ngram: " in summary
    assert "tokens/s at the end, realised " in summary


@pytest.mark.parametrize(("terminal", "before"), [(True, "\n"), (False, "")])
def test_a_line_begins_afresh_where_text_is_streamed_to_the_same_terminal(
    terminal: bool, before: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = EmbeddedEngine(toy_decoder(), NgramProposer(1, 2), FixedDraftLength(3))
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: terminal)
    explain_decisions(engine, beside_text=True)
    engine.controller.on_change("step 1")
    assert capsys.readouterr().err == f"{before}explain: step 1\n"


def test_fixed_lengths_say_so() -> None:
    engine = EmbeddedEngine(toy_decoder(), NgramProposer(1, 2), FixedDraftLength(3))
    run_tokens(engine, random_prompts(1), GREEDY)
    assert lengths_summary(engine).endswith("; the number is fixed")


def test_nothing_is_said_to_be_fixed_where_a_request_alone_may_not_draft() -> None:
    params = GREEDY.model_copy(update={"num_draft_tokens": 0})
    engine = EmbeddedEngine(toy_decoder(), NgramProposer(1, 2), AdaptiveDraftLength([Member("ngram", 8, 5)]))
    run_tokens(engine, random_prompts(1), params)
    assert lengths_summary(engine).endswith("0 probes")
