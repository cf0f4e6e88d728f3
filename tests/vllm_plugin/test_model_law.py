"""The sampling law of short outputs, where a model inside vLLM draws the drafts (see ``test_law``)."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from output_law import ALARM, chi_square_p
from prefix_law import output_law, prefix_logits
from transformers import LlamaForCausalLM
from vllm_drafts import Drafts, target_model
from vllm_toys import close, make_llm, run, runner_of

pytestmark = pytest.mark.vllm

VOCAB, PROMPT, LENGTH = 8, (5, 1, 5), 4
SIZES = pytest.mark.parametrize("num_outputs", [6_000, pytest.param(100_000, marks=pytest.mark.slow)])
NAMES = ("own head", "head: the last layer", "draft: a model nearby", "trained draft reading states")


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    return target_model(VOCAB)


@pytest.fixture(scope="module")
def folder(model: LlamaForCausalLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def logits(folder: Path) -> dict[tuple[int, ...], torch.Tensor]:
    return prefix_logits(folder, PROMPT, LENGTH)


def params_of(**controls: Any) -> Any:
    from vllm import SamplingParams

    return SamplingParams(max_tokens=LENGTH, detokenize=False, ignore_eos=True, **controls)


def draw(llm: Any, params: Any, num_outputs: int) -> Counter[tuple[int, ...]]:
    params.n = 128
    prompts = [{"prompt_token_ids": list(PROMPT)}] * math.ceil(num_outputs / 128)
    outputs = llm.generate(prompts, params, use_tqdm=False)
    return Counter(tuple(one.token_ids) for output in outputs for one in output.outputs)


def laws_judged_by(drafter: Any) -> list[bool]:
    """Of each step from now on, whether a draft of it came with its law."""
    seen, probs = [], drafter._laws.probs

    def noted(*arguments: Any) -> Any:
        found = probs(*arguments)
        seen.append(found is not None)
        return found

    drafter._laws.probs = noted
    return seen


@SIZES
@pytest.mark.parametrize("name", NAMES)
def test_drawn_drafts_keep_the_law(
    name: str, model: LlamaForCausalLM, folder: Path, logits: Any, num_outputs: int, tmp_path: Path
) -> None:
    llm = make_llm(folder, Drafts(model, tmp_path).options(name), max_num_seqs=128, max_model_len=32)
    try:
        drafter, params = runner_of(llm).drafter, params_of(temperature=0.6, top_p=0.95)
        laws = laws_judged_by(drafter)
        counts = draw(llm, params, num_outputs)
        metrics = drafter.metrics
        seeded = params_of(temperature=0.9, seed=5)
        alone = run(llm, [PROMPT], seeded)
        assert run(llm, [PROMPT] * 5, [params_of(temperature=0.7)] * 4 + [seeded])[4:] == alone
    finally:
        close(llm)
    assert metrics.num_proposer_faults == 0
    assert any(laws), "drafts were judged by the laws they were drawn from"
    assert metrics.num_accepted_tokens / metrics.num_drafted_tokens > 0.05
    law = output_law(logits, PROMPT, LENGTH, params)
    assert set(counts) <= set(law), "an output of probability 0 was generated"
    assert chi_square_p(counts, law) > ALARM
    assert chi_square_p(counts, output_law(logits, PROMPT, LENGTH, params_of())) < ALARM


def test_a_draft_that_misreports_is_flagged(
    model: LlamaForCausalLM, folder: Path, logits: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That the laws are used at all: halve the reported probability of the likeliest token."""
    from foredraft.proposers import drafting

    true_draw = drafting.draw

    def misreporting(*given: Any) -> Any:
        drawn = true_draw(*given)
        if drawn.probs is not None:
            drawn.probs[:, 0] /= 2
            drawn.probs.div_(drawn.probs.sum(1, keepdim=True))
        return drawn

    monkeypatch.setattr(drafting, "draw", misreporting)
    options = Drafts(model, tmp_path).options("own head")
    llm = make_llm(folder, options, max_num_seqs=128, max_model_len=32)
    try:
        params = params_of(temperature=0.9)
        counts = draw(llm, params, 6_000)
        assert runner_of(llm).drafter.metrics.num_proposer_faults == 0
    finally:
        close(llm)
    assert chi_square_p(counts, output_law(logits, PROMPT, LENGTH, params)) < ALARM
