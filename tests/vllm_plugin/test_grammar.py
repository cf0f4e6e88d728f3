"""Structured output: as without speculation, token by token and in law (F53, F55, F57, F59)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from drawing import DrawingProposer
from letters import TOKENIZER, token_ids
from output_law import ALARM, chi_square_p
from toys import ScriptedProposer, oracle_of
from transformers import LlamaForCausalLM
from vllm_toys import close, make_llm, run, runner_of, toy_folder

from foredraft.proposers import DraftContext
from foredraft.verifier import Draft

pytestmark = pytest.mark.vllm

VOCAB = 257
PROMPT = token_ids("a list: ")
LETTERS = token_ids("abc")
OPTIONS: dict[str, Any] = {"skip_tokenizer_init": False, "max_num_seqs": 128, "max_model_len": 128}
REGEX = r"\[[ab]{3},[0-9]{2,4}\]"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = toy_folder(tmp_path_factory.mktemp("letters"), vocab_size=VOCAB, num_layers=1, head_scale=0.5)
    TOKENIZER.save_pretrained(folder)
    return folder


def constrained(regex: str, **options: Any) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    return SamplingParams(structured_outputs=StructuredOutputsParams(regex=regex), **options)


@pytest.fixture(scope="module")
def plain(folder: Path) -> list[list[int]]:
    llm = make_llm(folder, **OPTIONS)
    try:
        return run(llm, [PROMPT], constrained(REGEX, temperature=0, max_tokens=30))
    finally:
        close(llm)


@pytest.fixture(scope="module")
def llm(folder: Path) -> Iterator[Any]:
    llm = make_llm(folder, {"num_draft_tokens": 8}, **OPTIONS)
    yield llm
    close(llm)


def test_greedy_output_is_that_without_speculation(
    plain: list[list[int]], llm: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """With drafts that run past the grammar's end, and drafts that break it at once."""
    caplog.set_level(logging.ERROR)
    drafter, params = runner_of(llm).drafter, constrained(REGEX, temperature=0, max_tokens=30)
    past_the_end = [*PROMPT, *plain[0], *token_ids("and more of it")]
    for num_right in (99, 3, 0):
        drafter.proposer = ScriptedProposer(oracle_of([past_the_end]), VOCAB, num_right=num_right)
        before = drafter.metrics.num_accepted_tokens
        assert run(llm, [PROMPT], params) == plain
        assert (drafter.metrics.num_accepted_tokens - before >= 3) == (num_right > 0)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


class Stubborn(DrawingProposer):
    """Draws where it is asked for a point mass."""

    num_calls = 0

    def propose(self, context: DraftContext) -> Draft:
        assert context.sampling.temperature.tolist() == [0.0] * len(context.request_ids)
        self.num_calls += 1
        return super().propose(context)


def letters_law(folder: Path, length: int) -> dict[tuple[int, ...], float]:
    """The law of so many letters, each a, b or c."""
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    law: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(length):
        with torch.inference_mode():
            last = model(torch.tensor([[*PROMPT, *output] for output in law])).logits[:, -1, LETTERS]
        law = {
            (*output, letter): probability * share
            for (output, probability), shares in zip(law.items(), last.softmax(-1).tolist(), strict=True)
            for letter, share in zip(LETTERS, shares, strict=True)
        }
    return law


@pytest.mark.parametrize("kind", ["point mass", "drawn"])
def test_the_law_under_a_grammar(folder: Path, llm: Any, kind: str) -> None:
    """vLLM cuts a draft off where the grammar forbids it. Of drawn tokens that biases what comes out."""
    drafter = runner_of(llm).drafter
    before = drafter.metrics.num_drafted_tokens
    if kind == "drawn":
        table = torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(0))
        table[:, token_ids("abx")] += 8.0
        stubborn = drafter.proposer = Stubborn(table)
    else:
        drafter.proposer = ScriptedProposer(lambda tokens: token_ids("bax"), VOCAB, lengths=[2, 1, 3, 0])
    params = constrained("[abc]{4}", temperature=1.0, max_tokens=4, n=128)
    outputs = llm.generate([{"prompt_token_ids": PROMPT}] * 16, params, use_tqdm=False)
    counts = Counter(tuple(one.token_ids) for output in outputs for one in output.outputs)
    assert chi_square_p(counts, letters_law(folder, 4)) > ALARM
    assert drafter.metrics.num_proposer_faults == 0
    if kind == "drawn":
        assert stubborn.num_calls > 0
    assert drafter.metrics.num_drafted_tokens > before


def test_min_tokens_beyond_the_grammars_end(llm: Any) -> None:
    """min_tokens forbids the only token that the grammar allows: the output ends all the same."""
    runner_of(llm).drafter.proposer = ScriptedProposer(lambda tokens: token_ids("aaaa"), VOCAB)
    tokens = run(llm, [PROMPT], constrained("[abc]{2}", temperature=0, max_tokens=9, min_tokens=8))[0]
    assert len(tokens) == 3
    assert tokens[-1] == 256
