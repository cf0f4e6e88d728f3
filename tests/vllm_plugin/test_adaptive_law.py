"""The sampling law of short outputs where lengths, and who drafts, change step by step; see ``test_law``."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from drawing import DrawingProposer
from erratic import Erratic
from made_up_clock import made_up_clock
from output_law import ALARM, chi_square_p
from prefix_law import output_law, prefix_logits
from transformers import LlamaForCausalLM
from vllm_drafts import Drafts, target_model
from vllm_toys import close, make_llm, runner_of

pytestmark = pytest.mark.vllm

VOCAB, PROMPT, LENGTH = 8, (5, 1, 5), 4
DRAFT_TABLE = torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(2))
SIZES = pytest.mark.parametrize("num_outputs", [6_000, pytest.param(100_000, marks=pytest.mark.slow)])


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


@pytest.fixture(scope="module")
def llm(model: LlamaForCausalLM, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two that share the requests: point masses, and what a part of the model draws."""
    drafts = Drafts(model, tmp_path_factory.mktemp("drafts")).options("own head")
    drafts |= {"proposer": "ngram,early_exit", "ngram": {"min_n": 1}}
    llm = make_llm(folder, drafts, max_num_seqs=128, max_model_len=32)
    yield llm
    close(llm)


def params() -> Any:
    from vllm import SamplingParams

    return SamplingParams(
        max_tokens=LENGTH, detokenize=False, ignore_eos=True, temperature=0.8, top_p=0.95, n=128
    )


def draw(llm: Any, num_outputs: int) -> Counter[tuple[int, ...]]:
    prompts = [{"prompt_token_ids": list(PROMPT)}] * math.ceil(num_outputs / 128)
    outputs = llm.generate(prompts, params(), use_tqdm=False)
    return Counter(tuple(one.token_ids) for output in outputs for one in output.outputs)


@SIZES
@pytest.mark.parametrize("erratic", [False, True], ids=["adaptive", "erratic"])
def test_the_law_where_two_share(llm: Any, logits: Any, erratic: bool, num_outputs: int) -> None:
    drafter = runner_of(llm).drafter
    if erratic:
        drafter.lengths.controller = Erratic(3, num_members=2)
    else:
        made_up_clock(drafter, token_s=0.0002, draft_s=0.002)
    counts = draw(llm, num_outputs)
    metrics = drafter.metrics
    assert metrics.num_proposer_faults == 0
    assert len(metrics.length_counts) > 1
    assert metrics.num_accepted_tokens > 100
    if erratic:
        assert len(metrics.member_counts) == 2
    law = output_law(logits, PROMPT, LENGTH, params())
    assert set(counts) <= set(law), "an output of probability 0 was generated"
    assert chi_square_p(counts, law) > ALARM


def test_a_length_that_hangs_on_the_drawn_token_is_flagged(llm: Any, logits: Any) -> None:
    """Ends a draft before a drawn token that it finds unlikely: lossy, and the check must say so."""

    class Peeking(DrawingProposer):
        def propose(self, context: Any) -> Any:
            draft = super().propose(context)
            unlikely = torch.isin(draft.token_ids, torch.tensor([0, 1, 2]))
            draft.lengths.copy_((~unlikely).cumprod(1).sum(1).minimum(draft.lengths))
            places = torch.arange(draft.token_ids.shape[1])
            draft.token_ids.masked_fill_(places >= draft.lengths[:, None], -1)
            return draft

    drafter = runner_of(llm).drafter
    drafter.lengths.controller = Erratic(3)
    drafter.proposer = Peeking(DRAFT_TABLE)
    counts = draw(llm, 12_000)
    assert chi_square_p(counts, output_law(logits, PROMPT, LENGTH, params())) < ALARM
