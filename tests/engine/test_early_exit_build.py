"""From a configuration to an engine with an early exit that drafts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from toy_drafts import toy_target
from toy_exits import NUM_LAYERS, exit_config, exit_model, trained_exit, written_exit
from toys import TOY_VOCAB, random_prompts, run_tokens, toy_model

from foredraft.integration.draft_lengths import MODEL_DRAFT_TOKENS
from foredraft.integration.embedded.build import build_engine
from foredraft.integration.embedded.target import Target
from foredraft.integration.models import trained_for
from foredraft.integration.models.draft_file import EXIT_FILE
from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers.early_exit import EarlyExitProposer

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
PROMPTS = random_prompts(5, seed=6, longest=30)
MODEL = exit_model()


@pytest.fixture(scope="module")
def target() -> Target:
    return toy_target(MODEL)


@pytest.fixture(scope="module")
def plain(target: Target) -> list[list[int]]:
    return run_tokens(build_engine(exit_config(proposer="none"), target), PROMPTS, GREEDY)


@pytest.mark.parametrize("states", [False, True], ids=["plain", "reads states"])
@pytest.mark.parametrize("trimmed", [False, True], ids=["whole head", "trimmed head"])
def test_a_trained_head_drafts(
    target: Target, plain: list[list[int]], tmp_path: Path, states: bool, trimmed: bool
) -> None:
    """As many tokens as its file says unless the configuration does, at the layer it was made for."""
    head_ids = torch.arange(0, TOY_VOCAB, 2) if trimmed else None
    file = trained_exit(MODEL, 2, reads_states=states, head_ids=head_ids, num_draft_tokens=3)
    folder = written_exit(tmp_path, file)
    for head, exit_layer in ((folder, None), (folder / EXIT_FILE, 2)):
        engine = build_engine(exit_config(head, exit_layer), target)
        assert engine.num_draft_tokens == 3
        assert run_tokens(engine, PROMPTS, GREEDY) == plain
        assert engine.metrics.num_proposer_faults == 0
        assert 0 < engine.metrics.num_accepted_tokens < engine.metrics.num_drafted_tokens
        assert len(engine.metrics.verified_per_position) == 3
    assert build_engine(exit_config(folder, num_draft_tokens=5), target).num_draft_tokens == 5


def test_the_own_head_drafts(target: Target, plain: list[list[int]]) -> None:
    accepted = []
    for exit_layer in (1, NUM_LAYERS):
        engine = build_engine(exit_config("own", exit_layer), target)
        assert engine.num_draft_tokens == MODEL_DRAFT_TOKENS
        assert run_tokens(engine, PROMPTS, GREEDY) == plain
        assert engine.metrics.num_proposer_faults == 0
        accepted.append(engine.metrics.num_accepted_tokens / engine.metrics.num_drafted_tokens)
    assert accepted[0] < accepted[1] == 1
    assert build_engine(exit_config("own", 1, num_draft_tokens=2), target).num_draft_tokens == 2


def test_the_options_arrive(target: Target) -> None:
    engine = build_engine(exit_config("own", 1, early_exit={"min_confidence": 0.4}), target)
    assert isinstance(engine.proposer, EarlyExitProposer)
    assert engine.proposer._min_confidence == 0.4


def test_a_tied_target_gives_its_embedding_as_head(tmp_path: Path) -> None:
    """A head of the last layer that needs no rows of its own in the file."""
    model = toy_model(2)
    model.lm_head.weight.copy_(model.model.embed_tokens.weight)
    file = trained_exit(model, 1)
    tensors = {name: tensor for name, tensor in file.tensors.items() if name != "head.weight"}
    tied = toy_target(model)
    engine = build_engine(exit_config(written_exit(tmp_path, replace(file, tensors=tensors))), tied)
    run_tokens(engine, PROMPTS, GREEDY)
    assert engine.metrics.num_accepted_tokens == engine.metrics.num_drafted_tokens > 0


def test_the_head_that_comes_with_the_model(
    target: Target, plain: list[list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written_exit(tmp_path, trained_exit(MODEL, 3, num_draft_tokens=6))
    shipped = {("toy", EXIT_FILE): tmp_path / EXIT_FILE}
    monkeypatch.setattr(trained_for, "pretrained", lambda *wanted: shipped.get(wanted))
    engine = build_engine(exit_config(), target)
    assert engine.num_draft_tokens == 6
    assert run_tokens(engine, PROMPTS, GREEDY) == plain


@pytest.mark.parametrize("head", ["own", "trained"])
def test_near_the_context_limit_drafts_get_shorter(target: Target, tmp_path: Path, head: str) -> None:
    """Up to the very last position and never beyond (F71, F73, F75)."""
    path = "own" if head == "own" else written_exit(tmp_path, trained_exit(MODEL, 2, reads_states=True))
    sizes = {"max_num_seqs": 2, "max_model_len": 40}
    params = SamplingParams(temperature=0, max_tokens=100, ignore_eos=True)
    expected = run_tokens(build_engine(exit_config(proposer="none", engine=sizes), target), PROMPTS, params)
    assert [len(one) for one in expected] == [40 - len(prompt) for prompt in PROMPTS]
    for width in (1, 8):
        engine = build_engine(exit_config(path, 2, engine=sizes, num_draft_tokens=width), target)
        assert run_tokens(engine, PROMPTS, params) == expected
        assert engine.metrics.num_proposer_faults == 0
        assert engine.metrics.num_accepted_tokens > 0


@pytest.mark.parametrize("head", ["own", "trained"])
def test_two_engines_on_one_target_step_in_turns(
    target: Target, plain: list[list[int]], tmp_path: Path, head: str
) -> None:
    """F177: with different exit layers; and one that does not draft works on afterwards."""
    engines = []
    for exit_layer in (1, 3):
        (tmp_path / str(exit_layer)).mkdir()
        path = written_exit(
            tmp_path / str(exit_layer), trained_exit(MODEL, exit_layer, reads_states=exit_layer == 1)
        )
        engines.append(build_engine(exit_config("own" if head == "own" else path, exit_layer), target))
    outputs: list[dict[str, list[int]]] = [{}, {}]
    for number, prompt in enumerate(PROMPTS):
        for engine in engines:
            engine.add_request(str(number), prompt, GREEDY)
    while any(engine.has_unfinished_requests() for engine in engines):
        for engine, seen in zip(engines, outputs, strict=True):
            seen |= {one.request_id: one.outputs[0].token_ids for one in engine.step() if one.finished}
    assert [[seen[str(number)] for number in range(len(PROMPTS))] for seen in outputs] == [plain] * 2
    first, second = (engine.metrics for engine in engines)
    assert (first.num_proposer_faults, second.num_proposer_faults) == (0, 0)
    assert first.num_drafted_tokens > second.num_drafted_tokens, "one of them errs more often"
    assert run_tokens(build_engine(exit_config(proposer="none"), target), PROMPTS, GREEDY) == plain
    assert target.prepared.num_layers == NUM_LAYERS
