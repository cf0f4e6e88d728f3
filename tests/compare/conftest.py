import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from foredraft.integration.compare.offline.block_run import BlockRun
from foredraft.integration.compare.offline.prompts import CompareRequest, Prompt
from foredraft.integration.compare.plan import ComparePlan, proposer_configs
from foredraft.integration.compare.results.base import HeadToHead
from foredraft.integration.compare.results.document import design, offline_words
from foredraft.integration.compare.results.model import ResultDocument, ResultRow
from foredraft.integration.compare.results.recommendation import recommendation
from foredraft.integration.compare.results.rows import overall_rows
from foredraft.integration.compare.statistics.verdict import speed_verdict
from foredraft.integration.compare.variants import BASELINE
from foredraft.integration.config import Config
from foredraft.integration.embedded.build import Target
from foredraft.integration.embedded.forward import prepare_model
from foredraft.integration.sampling_params import SamplingParams

VOCAB_SIZE = 97
MAX_LEN = 256
ENVIRONMENT = {"model": "toy", "dtype": "float32", "cpu": "a [fast] CPU", "gpu": None, "num_threads": 2}


class LetterTokenizer:
    """One token per letter."""

    chat_template = None

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [ord(letter) % VOCAB_SIZE for letter in text]}

    def decode(self, token_ids: Sequence[int], **_: Any) -> str:
        return "".join(chr(32 + token) for token in token_ids)


@pytest.fixture(scope="session")
def toy_model() -> LlamaForCausalLM:
    """A random target; greedy decoding of it soon repeats itself, so n-gram drafts are accepted."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=MAX_LEN,
        bos_token_id=None,
        eos_token_id=None,
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="session")
def toy_target(toy_model: LlamaForCausalLM) -> Target:
    return Target(
        name="toy",
        prepared=prepare_model(copy.deepcopy(toy_model)),
        tokenizer=LetterTokenizer(),
        eos_ids=frozenset(),
        vocab_size=VOCAB_SIZE,
        max_len=MAX_LEN,
        dtype=torch.float32,
        device=torch.device("cpu"),
        fingerprint="toy",
    )


@pytest.fixture
def make_plan() -> Callable[..., ComparePlan]:
    """A small plan over a workload "toy"."""

    def make(proposers: str = "ngram", max_tokens: int = 12, **given: Any) -> ComparePlan:
        sampling = {"max_tokens": max_tokens}
        config = Config(dtype="float32", device="cpu", sampling=sampling, ngram={"min_n": 1})
        values: dict[str, Any] = {
            "configs": proposer_configs(config, proposers.split(",")),
            "workloads": ("toy",),
            "batch_sizes": (1,),
            "temperatures": (0.0,),
            "repeats": 1,
        }
        return ComparePlan(**(values | given))

    return make


@pytest.fixture
def toy_prompts() -> dict[str, list[Prompt]]:
    """Six prompts of different lengths."""
    texts = ["abcabcab", "xyzzy", "to be or not to be", "q", "the mill by the stream", "hello hello"]
    tokenizer = LetterTokenizer()
    return {"toy": [Prompt(text[:3], tokenizer(text)["input_ids"]) for text in texts]}


@pytest.fixture
def make_requests(toy_prompts: dict[str, list[Prompt]]) -> Callable[..., list[CompareRequest]]:
    """The toy prompts with an output length each."""

    def make(max_tokens: Sequence[int], temperature: float = 0.0) -> list[CompareRequest]:
        return [
            CompareRequest(prompt, SamplingParams(temperature=temperature, max_tokens=length, seed=number))
            for number, (prompt, length) in enumerate(zip(toy_prompts["toy"], max_tokens, strict=True))
        ]

    return make


@pytest.fixture
def make_run() -> Callable[..., BlockRun]:
    """A block run with round figures: 100 tokens in ``seconds``."""

    def make(seconds: float, drafted: int = 0, accepted: int = 0, passes: int = 100) -> BlockRun:
        return BlockRun(
            num_draft_tokens=5,
            seconds=seconds,
            outputs=[[1] * 100],
            num_passes=passes,
            num_drafted_tokens=drafted,
            num_accepted_tokens=accepted,
            num_emitted_tokens=100,
            num_proposer_faults=0,
            phase_seconds={"propose": 0.1, "forward": 0.6, "sample": 0.2, "total": 1.0},
        )

    return make


@pytest.fixture
def make_row() -> Callable[..., ResultRow]:
    """A row of a result; the keywords change what matters to a test."""

    def make(config: str = "ngram", speedup: float = 1.5, half_width: float = 0.1, **given: Any) -> ResultRow:
        values: dict[str, Any] = {
            "config": config,
            "proposer": config,
            "workload": "toy",
            "batch_size": 1,
            "arrivals_per_s": None,
            "temperature": 0.0,
            "num_draft_tokens": 5,
            "tokens_per_s": 100.0 * speedup,
            "speedup": speedup,
            "speedup_low": speedup - half_width,
            "speedup_high": speedup + half_width,
            "standard_error": half_width / speedup / 2,
            "freedom": 5.0,
            "time_to_first_token_s": {"median": 0.1, "p95": 0.2, "p99": 0.3},
            "time_per_output_token_s": None,
            "acceptance_rate": 0.6,
            "acceptance_length": 2.0,
            "position_acceptance": [0.9, 0.5, None],
            "drafted_tokens": 10,
            "accepted_tokens": 6,
            "wasted_tokens": 4,
            "emitted_tokens": 100,
            "proposer_faults": 0,
            "outputs_equal": True,
            "first_difference": None,
            "law_p_value": None,
            "law_tokens": None,
            "ideal_speedup": 2.0,
            "share_of_ideal": speedup / 2.0,
            "time_split": {"propose": 0.1, "forward": 0.6, "sample": 0.2, "rest": 0.1},
            "memory_bytes": 1_000_000,
            "num_prompts": 6,
            "num_blocks": 6,
            "seconds": 3.0,
        }
        if given.get("speedup_low", 0) is None:
            values["standard_error"] = None
        interval = (values | given)["speedup_low"], (values | given)["speedup_high"]
        values["verdict"] = speed_verdict(None if interval[0] is None else interval)
        if config == BASELINE:
            values |= {"verdict": None, "acceptance_rate": None, "position_acceptance": []}
        return ResultRow.model_validate(values | given)

    return make


@pytest.fixture
def make_document(make_plan: Callable[..., ComparePlan]) -> Callable[..., ResultDocument]:
    """A result document around rows."""

    def make(rows: Sequence[ResultRow], **given: Any) -> ResultDocument:
        overall = overall_rows(rows, 0.95, 0.01)
        names = list(dict.fromkeys(["none", *(row.config for row in rows)]))
        values: dict[str, Any] = {
            "results": rows,
            "overall": overall,
            "head_to_head": [],
            "recommendation": recommendation(rows, overall, [], offline_words(rows)),
            "regressions": None,
            "baseline_notes": None,
            "design": design(make_plan(repeats=None), 0.99),
            "configs": {name: {"proposer": name} for name in names},
            "workloads": {"toy": "0123"},
            "environment": ENVIRONMENT,
            "command": "foredraft compare",
            "commit": None,
            "seed": 0,
            "started_at": "2025-01-02T03:04:05+00:00",
            "seconds": 12.0,
            "interrupted": False,
        }
        return ResultDocument(**(values | given))

    return make


@pytest.fixture
def workload_file(tmp_path: Path) -> Path:
    """A workload of three prompts."""
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(f'{{"id": "p{n}", "turns": ["abcabcabc{n}"]}}\n' for n in range(3)))
    return path


@pytest.fixture
def draft_beats_ngram() -> HeadToHead:
    """Two against one another, with round figures."""
    return HeadToHead(
        config="draft",
        against="ngram",
        conditions=["batch 1", "temperature 0"],
        num_workloads=1,
        speedup=1.33,
        speedup_low=1.25,
        speedup_high=1.42,
        standard_error=0.01,
        freedom=5,
        verdict="faster",
    )
