"""The sampling law of whole short outputs through the whole of vLLM, against the exact law of a tiny model.

Chi-square over complete outputs, alarm at p < 1e-6. The default suite draws some thousand outputs a case, the
slow one 100 000. Stock vLLM's own n-gram drafts on a CPU are the negative control: above temperature 0 their
law is wrong there (it reads memory that nobody wrote), and the same check must say so.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from drawing import DrawingProposer
from output_law import ALARM, chi_square_p
from prefix_law import output_law, prefix_logits
from toys import ScriptedProposer
from vllm_toys import close, in_a_process_of_its_own, make_llm, runner_of, toy_folder

pytestmark = pytest.mark.vllm

VOCAB, PROMPT, LENGTH = 8, (5, 1, 5), 4
DRAFT_TABLE = torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(2))
SIZES = pytest.mark.parametrize("num_outputs", [6_000, pytest.param(100_000, marks=pytest.mark.slow)])
CONTROLS: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 0.5},
    "top-k and top-p": {"top_k": 5, "top_p": 0.8},
    "min-p": {"min_p": 0.2},
    "bias": {"logit_bias": {0: 1.5, 4: -2.0}, "temperature": 0.8},
    "penalties": {"presence_penalty": 0.7, "frequency_penalty": 0.4, "repetition_penalty": 1.3},
    "allowed tokens, min_tokens": {"allowed_token_ids": [0, 1, 3, 4], "stop_token_ids": [3], "min_tokens": 4},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_folder(tmp_path_factory.mktemp("tiny"), vocab_size=VOCAB, num_layers=1, head_scale=0.6)


@pytest.fixture(scope="module")
def logits(folder: Path) -> dict[tuple[int, ...], torch.Tensor]:
    return prefix_logits(folder, PROMPT, LENGTH)


@pytest.fixture(scope="module")
def llm(folder: Path) -> Iterator[Any]:
    llm = make_llm(folder, {"num_draft_tokens": 3, "ngram": {"min_n": 1}}, max_num_seqs=128, max_model_len=32)
    yield llm
    close(llm)


def params_of(**controls: Any) -> Any:
    from vllm import SamplingParams

    return SamplingParams(max_tokens=LENGTH, detokenize=False, ignore_eos=True, **controls)


def draw(llm: Any, params: Any, num_outputs: int) -> Counter[tuple[int, ...]]:
    """Outputs of as many requests, 128 of each prompt."""
    params.n = 128
    prompts = [{"prompt_token_ids": list(PROMPT)}] * math.ceil(num_outputs / 128)
    outputs = llm.generate(prompts, params, use_tqdm=False)
    return Counter(tuple(one.token_ids) for output in outputs for one in output.outputs)


def likely_chain(
    logits: dict[tuple[int, ...], torch.Tensor], allowed: Sequence[int]
) -> Callable[[Sequence[int]], Sequence[int]]:
    """Drafts what is likeliest after what was written, of the ``allowed`` tokens."""

    def chain(tokens: Sequence[int]) -> Sequence[int]:
        output = tuple(tokens[len(PROMPT) :])
        drafted: tuple[int, ...] = ()
        while len(output) + len(drafted) < LENGTH:
            after = logits[output + drafted]
            drafted = (*drafted, max(allowed, key=lambda token: float(after[token])))
        return drafted

    return chain


@SIZES
@pytest.mark.parametrize("controls", CONTROLS)
def test_point_mass_drafts(llm: Any, logits: Any, controls: str, num_outputs: int) -> None:
    drafter, params = runner_of(llm).drafter, params_of(**CONTROLS[controls])
    drafter.proposer = ScriptedProposer(
        likely_chain(logits, params.allowed_token_ids or range(VOCAB)), VOCAB, lengths=[2, 1, 2, 0]
    )
    before = drafter.metrics.num_accepted_tokens
    counts = draw(llm, params, num_outputs)
    assert drafter.metrics.num_accepted_tokens - before > num_outputs / 20
    law = output_law(logits, PROMPT, LENGTH, params)
    assert set(counts) <= set(law), "an output of probability 0 was generated"
    assert chi_square_p(counts, law) > ALARM
    without = output_law(logits, PROMPT, LENGTH, params_of())
    assert chi_square_p(counts, without) < ALARM, "the controls make a difference"


@SIZES
@pytest.mark.parametrize("form", ["dense", "sparse", "mixed"])
def test_drawn_drafts(llm: Any, logits: Any, form: str, num_outputs: int) -> None:
    """Drafts with probabilities travel through vLLM's scheduler and meet their laws again (F11, F15)."""
    drafter, params = runner_of(llm).drafter, params_of(temperature=0.9, top_p=0.95)
    drafter.proposer = DrawingProposer(DRAFT_TABLE, form, top_k=3 if form == "sparse" else 0)
    counts = draw(llm, params, num_outputs)
    assert drafter.metrics.num_proposer_faults == 0
    assert chi_square_p(counts, output_law(logits, PROMPT, LENGTH, params)) > ALARM


def test_a_wrong_report_is_flagged(llm: Any, logits: Any) -> None:
    """The drawn drafts are judged by what is reported: a wrong report must show."""
    params = params_of(temperature=1.0)
    runner_of(llm).drafter.proposer = DrawingProposer(DRAFT_TABLE, temperature=1.0, reported_temperature=0.4)
    assert chi_square_p(draw(llm, params, 6_000), output_law(logits, PROMPT, LENGTH, params)) < ALARM


def test_stock_vllm_is_wrong_above_temperature_0_on_a_cpu(folder: Path, logits: Any) -> None:
    """Why its rejection sampler is not used, and that this check would notice."""
    params = params_of(temperature=0.5)
    stock = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1, "prompt_lookup_max": 2}
    with in_a_process_of_its_own():
        llm = make_llm(folder, None, speculative_config=stock, max_num_seqs=128, max_model_len=32)
    try:
        counts = draw(llm, params, 6_000)
    finally:
        close(llm)
    assert chi_square_p(counts, output_law(logits, PROMPT, LENGTH, params)) < ALARM
