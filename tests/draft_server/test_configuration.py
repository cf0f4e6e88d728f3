"""``draft.server`` in a configuration: what is built on both sides, and what is refused by name."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
from draft_service import LocalChannel
from toy_drafts import trained_draft
from toys import byte_tokenizer, random_prompts, run_tokens, toy_model

from foredraft.integration.config import Config
from foredraft.integration.draft_service import asking
from foredraft.integration.draft_service.hosting import HostedFactory
from foredraft.integration.embedded.build import build_engine, load_target
from foredraft.integration.embedded.target import Target
from foredraft.integration.errors import UserError
from foredraft.integration.models.draft_file import DRAFT_FILE, write_draft_file
from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers.remote import RemoteProposer
from foredraft.scheduler.draft_server import DraftServer

GREEDY = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)
PROMPTS = random_prompts(6, seed=3, longest=30, vocab_size=257)
VOCAB = 257


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target, a whole model that drafts for it, and a trained draft that reads its states."""
    root = tmp_path_factory.mktemp("models")
    model = toy_model(2, vocab_size=VOCAB)
    for name, one in (("target", copy.deepcopy(model)), ("model", copy.deepcopy(model))):
        one.save_pretrained(root / name)
        byte_tokenizer().save_pretrained(root / name)
    write_draft_file(root / DRAFT_FILE, trained_draft(model))
    write_draft_file(root / "other.safetensors", replace(trained_draft(model), target_fingerprint="another"))
    return root


@pytest.fixture(scope="module")
def target(folders: Path) -> Target:
    return load_target(Config(model=str(folders / "target"), dtype="float32", device="cpu"))


def config_of(folders: Path, draft: str, **options: object) -> Config:
    options = {"model": str(folders / draft), "server": "tests/drafts"} | options
    return Config(
        model=str(folders / "target"),
        proposer="draft",
        dtype="float32",
        device="cpu",
        draft={"server_deadline_ms": 5000.0} | options,
        engine={"max_num_seqs": 4, "max_model_len": 128},
    )


def served_here(monkeypatch: pytest.MonkeyPatch, channel: object) -> None:
    monkeypatch.setattr(asking, "ray_channel", lambda config: channel)


@pytest.mark.parametrize("draft", ["model", DRAFT_FILE])
def test_a_configuration_makes_both_sides(
    folders: Path, target: Target, draft: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(folders, draft)
    channel = LocalChannel(DraftServer(HostedFactory(config)()))
    served_here(monkeypatch, channel)
    engine = build_engine(config, target)
    assert isinstance(engine.proposer, RemoteProposer)
    plain = build_engine(config.model_copy(update={"proposer": "none"}), target)
    assert run_tokens(engine, PROMPTS, GREEDY) == run_tokens(plain, PROMPTS, GREEDY)
    assert engine.metrics.num_accepted_tokens > 10
    assert engine.metrics.num_proposer_faults == 0


def test_the_server_of_a_whole_model_does_not_load_the_target(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foredraft.integration.draft_service.hosting.load_target", lambda config: 1 / 0)
    hosted = HostedFactory(config_of(folders, "model"))()
    assert (hosted.vocab_size, hosted.num_rows, hosted.states) == (VOCAB, 5, None)


def test_without_its_server_an_engine_starts(
    folders: Path, target: Target, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    channel = LocalChannel(None)  # type: ignore[arg-type]
    served_here(monkeypatch, channel)
    engine = build_engine(config_of(folders, "model"), target)
    assert "tests/drafts is not there" in caplog.text
    run_tokens(engine, PROMPTS, GREEDY)
    assert engine.metrics.num_drafted_tokens == 0


def test_a_server_for_another_target_is_refused(
    folders: Path, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosted = replace(HostedFactory(config_of(folders, DRAFT_FILE))(), fingerprint="f" * 32)
    served_here(monkeypatch, LocalChannel(DraftServer(hosted)))
    with pytest.raises(
        UserError, match=r"draft.server: tests/drafts .* trained for other weights \(ffffffff\)"
    ):
        build_engine(config_of(folders, DRAFT_FILE), target)


def test_a_draft_for_another_target_is_refused_before_anyone_is_asked(folders: Path, target: Target) -> None:
    with pytest.raises(UserError, match=r"draft.model: .*was trained for"):
        build_engine(config_of(folders, "other.safetensors"), target)


@pytest.mark.ray
def test_a_cluster_that_is_not_there_is_named(
    folders: Path, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(UserError, match=r"draft.server: .*127\.0\.0\.1:9.*draft.server_address"):
        build_engine(config_of(folders, "model", server_address="127.0.0.1:9"), target)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("server", "a/b/c"),
        ("server", "two words"),
        ("server", ""),
        ("server_deadline_ms", 0.0),
        ("server_deadline_ms", float("nan")),
        ("draft_ahead", "maybe"),
        ("draft_ahead", True),
    ],
)
def test_bad_options_are_named(folders: Path, name: str, value: object) -> None:
    with pytest.raises(UserError, match=rf"draft\.{name}"):
        config_of(folders, "model", **{name: value})
