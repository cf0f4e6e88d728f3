"""Whole comparisons on a toy target: who runs when, and what the output check says."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from foredraft.integration.compare.offline import measure as measure_module
from foredraft.integration.compare.offline.closed_loop import BlockRun, run_block
from foredraft.integration.compare.offline.measure import MeasuredBlock, promises_equal_tokens
from foredraft.integration.compare.offline.prompts import CompareRequest, Prompt
from foredraft.integration.compare.offline.session import build_engines, run_comparison
from foredraft.integration.compare.plan import ComparePlan
from foredraft.integration.compare.results.rows import ResultRow, result_rows
from foredraft.integration.embedded import engine as engine_module
from foredraft.integration.embedded.build import Target
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.errors import UserError
from foredraft.proposers.ngram import NgramProposer
from foredraft.verifier import Draft, SamplingBatch, Verdict

MakePlan = Callable[..., ComparePlan]
Prompts = dict[str, list[Prompt]]


def rows_of(plan: ComparePlan, target: Target, prompts: Prompts) -> list[ResultRow]:
    return result_rows(list(run_comparison(plan, target, prompts)))


@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_ngram_gives_the_same_tokens_in_float32(
    make_plan: MakePlan, toy_target: Target, toy_prompts: Prompts, batch_size: int, temperature: float
) -> None:
    plan = make_plan(batch_sizes=(batch_size,), temperatures=(temperature,), max_tokens=40)
    none, ngram = rows_of(plan, toy_target, toy_prompts)
    assert (none.outputs_equal, ngram.outputs_equal) == (True, True)
    assert ngram.drafted_tokens > 0
    assert none.emitted_tokens == ngram.emitted_tokens == 240
    assert (none.acceptance_length, none.acceptance_rate, none.speedup) == (1.0, None, 1.0)


def accept_everything(logits: torch.Tensor, draft: Draft, sampling: SamplingBatch, rule: str) -> Verdict:
    """A verifier that believes every draft."""
    last = (draft.lengths + 1).cumsum(0) - 1
    padded = torch.nn.functional.pad(draft.token_ids, (0, 1), value=-1)
    token_ids = padded.scatter(1, draft.lengths[:, None], logits[last].argmax(-1)[:, None])
    return Verdict(token_ids, draft.lengths.clone())


def test_a_faulty_verifier_is_reported(
    make_plan: MakePlan, toy_target: Target, toy_prompts: Prompts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "verify", accept_everything)
    monkeypatch.setattr(
        NgramProposer,
        "propose",
        lambda self, context: Draft.from_lists([[1] * limit for limit in context.max_draft_tokens]),
    )
    none, ngram = rows_of(make_plan(), toy_target, toy_prompts)
    assert none.outputs_equal is True
    assert ngram.outputs_equal is False
    first = ngram.first_difference
    assert first is not None
    assert (first.prompt_id, first.position) == ("abc", 1)
    assert first.logit_gap is not None
    assert first.logit_gap > 0


def test_a_faulty_proposer_costs_speed_only_and_is_counted(
    make_plan: MakePlan, toy_target: Target, toy_prompts: Prompts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: NgramProposer, context: Any) -> Draft:
        raise RuntimeError("broken")

    monkeypatch.setattr(NgramProposer, "propose", fail)
    none, ngram = rows_of(make_plan(), toy_target, toy_prompts)
    assert ngram.outputs_equal is True
    assert (none.proposer_faults, ngram.acceptance_rate, ngram.acceptance_length) == (0, None, 1.0)
    # 12 tokens a prompt: the first comes from reading it (unless it is one token long, as one prompt is), and
    # for the last there is no room to draft.
    assert ngram.proposer_faults == 6 * 10 + 1


def test_proposers_take_turns_on_the_same_requests(
    make_plan: MakePlan, toy_target: Target, toy_prompts: Prompts, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[tuple[str, list[str], list[int | None], int]] = []

    def recording(engine: EmbeddedEngine, requests: Sequence[CompareRequest], batch_size: int) -> BlockRun:
        name = "none" if engine.proposer is None else "ngram"
        ids = [request.prompt.prompt_id for request in requests]
        served.append((name, ids, [request.params.seed for request in requests], batch_size))
        return run_block(engine, requests, batch_size)

    monkeypatch.setattr(measure_module, "run_block", recording)
    blocks = list(run_comparison(make_plan(batch_sizes=(2, 4)), toy_target, toy_prompts))
    warm_ups, timed = served[:2], served[2:]
    assert {name for name, *_ in warm_ups} == {"none", "ngram"}
    assert [name for name, *_ in timed] == [
        "none",
        "ngram",
        "ngram",
        "none",
        "none",
        "ngram",
        "ngram",
        "none",
    ]
    assert [len(ids) for _, ids, *_ in timed] == [2] * 6 + [6] * 2
    assert [batch_size for *_, batch_size in timed] == [2] * 6 + [4] * 2
    for one, other in zip(timed[::2], timed[1::2], strict=True):
        assert one[1:] == other[1:]
    assert [block.prompt_ids for block in blocks] == [ids for _, ids, *_ in timed[::2]]


def test_warming_up_is_not_counted(make_plan: MakePlan, toy_target: Target, toy_prompts: Prompts) -> None:
    none, ngram = rows_of(make_plan(max_tokens=3), toy_target, toy_prompts)
    assert none.emitted_tokens == ngram.emitted_tokens == 18


def test_complete_blocks_survive_an_interruption(
    make_plan: MakePlan, toy_target: Target, toy_prompts: Prompts, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_runs = 0

    def interrupted(engine: EmbeddedEngine, requests: Sequence[CompareRequest], batch_size: int) -> BlockRun:
        nonlocal num_runs
        num_runs += 1
        if num_runs == 6:  # two warm-ups, one whole block, half of the next
            raise KeyboardInterrupt
        return run_block(engine, requests, batch_size)

    monkeypatch.setattr(measure_module, "run_block", interrupted)
    blocks: list[MeasuredBlock] = []
    with pytest.raises(KeyboardInterrupt):
        blocks.extend(run_comparison(make_plan(), toy_target, toy_prompts))
    assert len(blocks) == 1
    assert set(blocks[0].runs) == {"none", "ngram"}


def test_a_batch_that_memory_does_not_hold_is_refused(
    make_plan: MakePlan, toy_target: Target, toy_prompts: Prompts
) -> None:
    plan = make_plan(batch_sizes=(1, 5))
    config = plan.base
    # A row of the toy: 34 positions of 768 bytes; 3 rows fit into 100 kB.
    engine = config.engine.model_copy(update={"kv_cache_memory_gb": 1e-4})
    small = {name: one.model_copy(update={"engine": engine}) for name, one in plan.configs.items()}
    plan = make_plan(batch_sizes=(1, 5))
    plan = ComparePlan(small, plan.workloads, plan.batch_sizes, plan.temperatures)
    with pytest.raises(UserError, match="--batch-sizes: 5 requests of 34 tokens do not fit"):
        build_engines(plan, toy_target, toy_prompts)


def test_engines_share_the_target_but_no_cache(
    make_plan: MakePlan, toy_target: Target, toy_prompts: Prompts
) -> None:
    engines = build_engines(make_plan(batch_sizes=(4,)), toy_target, toy_prompts)
    none, ngram = engines["none"].decoder, engines["ngram"].decoder
    assert none.prepared is ngram.prepared
    assert none.cache is not ngram.cache
    assert (none.num_rows, none.capacity) == (4, 22 + 12), "the longest prompt and its output, no more"


@pytest.mark.parametrize(
    ("proposer", "temperature", "dtype", "promised"),
    [
        ("ngram", 0.0, torch.bfloat16, True),
        ("mine", 0.0, torch.float32, True),
        ("ngram", 0.7, torch.float32, True),
        ("ngram", 0.7, torch.bfloat16, False),
        ("mine", 0.7, torch.float32, False),
    ],
)
def test_where_equal_tokens_are_promised(
    proposer: str, temperature: float, dtype: torch.dtype, promised: bool
) -> None:
    assert promises_equal_tokens(proposer, temperature, dtype) is promised
