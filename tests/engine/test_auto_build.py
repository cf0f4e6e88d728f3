"""From a configuration with several proposers, or open lengths, to an engine."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from erratic import Erratic
from toy_drafts import toy_target, trained_draft
from toy_exits import exit_model, trained_exit
from toys import random_prompts, run_tokens

from foredraft.integration.config import Config
from foredraft.integration.draft_lengths import AUTO_DRAFT_TOKENS, AUTO_MODEL_DRAFT_TOKENS
from foredraft.integration.embedded.build import build_engine
from foredraft.integration.embedded.target import Target
from foredraft.integration.errors import UserError
from foredraft.integration.models.draft_file import DRAFT_FILE, EXIT_FILE, write_draft_file
from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers.auto import AutoProposer
from foredraft.proposers.ngram import NgramProposer
from foredraft.scheduler.speculation import AdaptiveDraftLength, FixedDraftLength

GREEDY = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
PROMPTS = random_prompts(5, seed=6, longest=30)
MODEL = exit_model()


@pytest.fixture(scope="module")
def target() -> Target:
    return toy_target(MODEL)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREDRAFT_CACHE", str(tmp_path / "cache"))


def config_of(proposer: Any, **values: Any) -> Config:
    given: dict[str, Any] = {
        "model": "toy",
        "dtype": "float32",
        "device": "cpu",
        "proposer": proposer,
        "engine": {"max_num_seqs": 3, "max_model_len": 128},
    }
    return Config(**(given | values))


def trained(folder: Path) -> dict[str, Any]:
    """A draft and an exit head for the target."""
    write_draft_file(folder / DRAFT_FILE, trained_draft(MODEL, reads_states=True))
    write_draft_file(folder / EXIT_FILE, trained_exit(MODEL, 2, reads_states=True))
    return {"draft": {"model": str(folder)}, "early_exit": {"head": str(folder)}}


@pytest.mark.parametrize(
    ("proposer", "names"),
    [
        ("auto", ["ngram", "draft", "early_exit"]),
        (["draft", "early_exit"], ["draft", "early_exit"]),
        ("early_exit, ngram", ["early_exit", "ngram"]),
    ],
)
def test_several_proposers_share_an_engine(
    proposer: Any, names: list[str], target: Target, tmp_path: Path
) -> None:
    """All can take part, and the output is that of plain decoding.

    Who is chosen hangs on the clock, so another controller follows that gives each its turns.
    """
    plain = run_tokens(build_engine(config_of("none"), target), PROMPTS * 3, GREEDY)
    engine = build_engine(config_of(proposer, **trained(tmp_path)), target)
    assert isinstance(engine.proposer, AutoProposer)
    assert engine.proposer.names == names
    assert isinstance(engine.controller, AdaptiveDraftLength)
    assert run_tokens(engine, PROMPTS * 3, GREEDY) == plain
    engine.controller = Erratic(3, num_members=len(names))
    assert run_tokens(engine, PROMPTS * 3, GREEDY) == plain
    assert engine.metrics.num_proposer_faults == 0
    assert sorted(engine.metrics.member_counts) == list(range(len(names)))
    assert engine.metrics.num_accepted_tokens > 0


def test_auto_goes_without_what_cannot_draft(target: Target, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        engine = build_engine(config_of("auto"), target)
    assert isinstance(engine.proposer, AutoProposer)
    assert engine.proposer.names == ["ngram"]
    assert "goes without draft" in caplog.text
    assert "goes without early_exit" in caplog.text


@pytest.mark.parametrize("name", ["draft", "early_exit"])
def test_what_is_named_must_be_able_to(name: str, target: Target) -> None:
    with pytest.raises(UserError, match="none is given"):
        build_engine(config_of(["ngram", name]), target)


def test_the_most_that_is_drafted(target: Target, tmp_path: Path) -> None:
    def most(proposer: str, **values: Any) -> list[int]:
        engine = build_engine(config_of(proposer, **(trained(tmp_path) | values)), target)
        assert isinstance(engine.controller, AdaptiveDraftLength)
        assert engine.num_draft_tokens == max(one.max_draft_tokens for one in engine.controller.members)
        return [one.max_draft_tokens for one in engine.controller.members]

    assert most("auto") == [AUTO_DRAFT_TOKENS, AUTO_MODEL_DRAFT_TOKENS, AUTO_MODEL_DRAFT_TOKENS]
    assert most("auto", num_draft_tokens=3) == [3, 3, 3]
    assert most("draft", num_draft_tokens="auto") == [AUTO_MODEL_DRAFT_TOKENS]
    assert most("ngram", num_draft_tokens="auto") == [AUTO_DRAFT_TOKENS]


def test_one_proposer_with_a_number_has_fixed_lengths(target: Target) -> None:
    engine = build_engine(config_of("ngram", num_draft_tokens=5), target)
    assert isinstance(engine.proposer, NgramProposer)
    assert isinstance(engine.controller, FixedDraftLength)
    assert engine.num_draft_tokens == 5
    assert build_engine(config_of("none", num_draft_tokens="auto"), target).num_draft_tokens == 0


def test_the_calibration_can_be_left_out(target: Target, tmp_path: Path) -> None:
    engine = {"max_num_seqs": 3, "max_model_len": 128, "calibrate": False}
    built = build_engine(config_of("auto", engine=engine), target)
    assert not built.controller._learned.step_cost.known  # type: ignore[attr-defined]
    assert not (tmp_path / "cache" / "pass_times").exists()


@pytest.mark.parametrize(
    ("proposer", "message"),
    [
        (["ngram", "none"], "in a list, should be of ngram, draft, early_exit"),
        (["ngram", "auto"], "in a list, should be of"),
        ("ngram,ngram", "should name each proposer once"),
        (["ngram", "darft"], "did you mean draft"),
        ("aut", "did you mean auto"),
        (["ngram", "bogus"], "not 'bogus'"),
        ([], "should be a name, or a list of names"),
        (["ngram", 3], "should be a name, or a list of names"),
        (7, "should be a name, or a list of names"),
    ],
)
def test_bad_lists_are_refused(proposer: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        config_of(proposer)
