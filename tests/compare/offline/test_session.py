"""Whole comparisons on a toy target: who runs when, and what the output check says."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from foredraft.integration.compare.offline import measure as measure_module
from foredraft.integration.compare.offline import open_pairs, output_check
from foredraft.integration.compare.offline.block_run import BlockRun, RequestTimes
from foredraft.integration.compare.offline.blocks import turns
from foredraft.integration.compare.offline.engines import build_bench, build_engines
from foredraft.integration.compare.offline.law_check import ALARM
from foredraft.integration.compare.offline.measure import MeasuredBlock
from foredraft.integration.compare.offline.output_check import promises_equal_tokens
from foredraft.integration.compare.offline.prompts import CompareRequest, Prompt
from foredraft.integration.compare.offline.serving import run_block
from foredraft.integration.compare.offline.session import Finished, check_arrivals_fit, run_comparison
from foredraft.integration.compare.plan import Cell, ComparePlan
from foredraft.integration.compare.progress import progress_line
from foredraft.integration.compare.results.model import ResultRow
from foredraft.integration.compare.results.rows import result_rows
from foredraft.integration.compare.statistics.looks import LOOKS
from foredraft.integration.config import Config
from foredraft.integration.embedded import engine as engine_module
from foredraft.integration.embedded.build import Target
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.errors import UserError
from foredraft.proposers.ngram import NgramProposer
from foredraft.verifier import Draft, SamplingBatch, Verdict

MakePlan = Callable[..., ComparePlan]
Prompts = dict[str, list[Prompt]]


def blocks_of(
    plan: ComparePlan, target: Target, prompts: Prompts, finished: Finished | None = None
) -> list[MeasuredBlock]:
    bench = build_bench(plan, target, prompts)
    with progress_line() as progress:
        return list(run_comparison(bench, prompts, finished or {}, progress))


def rows_of(plan: ComparePlan, target: Target, prompts: Prompts) -> list[ResultRow]:
    return result_rows(blocks_of(plan, target, prompts), plan, plan.interval_level(len(plan.cells())))


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
    plan = make_plan()
    blocks = blocks_of(plan, toy_target, toy_prompts)
    none, ngram = result_rows(blocks, plan, level=0.95)
    assert none.outputs_equal is True
    assert (ngram.outputs_equal, ngram.verdict) == (False, "output differs")
    first = ngram.first_difference
    assert first is not None
    assert (first.prompt_id, first.position) == (blocks[0].prompt_ids[0], 1)
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

    def recording(engine: EmbeddedEngine, requests: Sequence[CompareRequest], *load: Any) -> BlockRun:
        name = "none" if engine.proposer is None else "ngram"
        ids = [request.prompt.prompt_id for request in requests]
        served.append((name, ids, [request.params.seed for request in requests], load[0]))
        return run_block(engine, requests, *load)

    monkeypatch.setattr(measure_module, "run_block", recording)
    plan = make_plan(batch_sizes=(2, 4))
    blocks = blocks_of(plan, toy_target, toy_prompts)
    warm_ups = [one for one in served if len(one[1]) == one[3] and one not in served[-2:]][:2]
    assert {name for name, *_ in warm_ups} == {"none", "ngram"}
    assert [len(block.prompt_ids) for block in sorted(blocks, key=lambda one: one.cell.batch_size)] == [
        2
    ] * 3 + [6]
    for block in blocks:
        own = [one for one in served if one[1] == block.prompt_ids and one[3] == block.cell.batch_size]
        assert [name for name, *_ in own][-2:] == turns(plan, block.cell, block.number)
        assert own[-1][1:] == own[-2][1:], "the same prompts, seeds and batch size"


def test_warming_up_is_not_counted(make_plan: MakePlan, toy_target: Target, toy_prompts: Prompts) -> None:
    none, ngram = rows_of(make_plan(max_tokens=3), toy_target, toy_prompts)
    assert none.emitted_tokens == ngram.emitted_tokens == 18


def test_complete_blocks_survive_an_interruption(
    make_plan: MakePlan, toy_target: Target, toy_prompts: Prompts, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_runs = 0

    def interrupted(engine: EmbeddedEngine, requests: Sequence[CompareRequest], *load: Any) -> BlockRun:
        nonlocal num_runs
        num_runs += 1
        if num_runs == 6:  # two warm-ups, one whole block, half of the next
            raise KeyboardInterrupt
        return run_block(engine, requests, *load)

    monkeypatch.setattr(measure_module, "run_block", interrupted)
    bench = build_bench(make_plan(), toy_target, toy_prompts)
    blocks: list[MeasuredBlock] = []
    with progress_line() as progress, pytest.raises(KeyboardInterrupt):
        blocks.extend(run_comparison(bench, toy_prompts, {}, progress))
    assert len(blocks) == 1
    assert set(blocks[0].runs) == {"none", "ngram"}


def timed(monkeypatch: pytest.MonkeyPatch, ratio: float, seconds: float = 1.0) -> None:
    """Blocks take ``seconds`` without speculation and ``seconds / ratio`` with it, by a few percent."""
    noise = random.Random(0)

    def run(engine: EmbeddedEngine, requests: Sequence[CompareRequest], *load: Any) -> BlockRun:
        taken = seconds * noise.uniform(0.97, 1.03) / (ratio if engine.proposer else 1.0)
        return replace(run_block(engine, requests, *load), seconds=taken)

    monkeypatch.setattr(measure_module, "run_block", run)


@pytest.mark.parametrize(
    ("ratio", "verdict"), [(2.0, "faster"), (0.5, "slower"), (1.0, "no difference shown")]
)
def test_a_cell_ends_when_its_verdict_is_clear(
    make_plan: MakePlan,
    toy_target: Target,
    toy_prompts: Prompts,
    monkeypatch: pytest.MonkeyPatch,
    ratio: float,
    verdict: str,
) -> None:
    timed(monkeypatch, ratio)
    monkeypatch.setattr(open_pairs, "MIN_CHECKED_TOKENS", 0)
    plan = make_plan(repeats=None, max_tokens=3)
    blocks = blocks_of(plan, toy_target, toy_prompts)
    row = result_rows(blocks, plan, plan.interval_level(1))[1]
    assert row.verdict == verdict
    assert len(blocks) in LOOKS[:4], "at a look, and long before the last"


def test_it_does_not_end_before_enough_of_the_output_was_checked(
    make_plan: MakePlan, toy_target: Target, toy_prompts: Prompts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3 tokens a block and cell: in two cells 13 blocks have 78 together, 19 have 114."""
    timed(monkeypatch, 2.0)
    monkeypatch.setattr(open_pairs, "MIN_CHECKED_TOKENS", 100)
    blocks = blocks_of(
        make_plan(repeats=None, max_tokens=3, temperatures=(0.0, 0.5)), toy_target, toy_prompts
    )
    assert sorted(block.number for block in blocks)[-1] + 1 == LOOKS[3] == 19


def test_unchecked_output_holds_nothing_open(
    make_plan: MakePlan, toy_target: Target, toy_prompts: Prompts, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed(monkeypatch, 2.0)
    monkeypatch.setattr(output_check, "promises_equal_tokens", lambda *_: False)
    blocks = blocks_of(make_plan(repeats=None, max_tokens=3), toy_target, toy_prompts)
    assert len(blocks) in LOOKS[:4]


def test_who_is_judged_takes_no_further_part(
    make_plan: MakePlan, toy_target: Target, toy_prompts: Prompts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two configurations: one twice as fast, one now faster, now slower."""
    plan = make_plan(repeats=None, max_tokens=2)
    plan = replace(plan, configs=plan.configs | {"again": plan.base})

    def measure(self: Any, cell: Cell, number: int, requests: Any, names: Any) -> MeasuredBlock:
        seconds = {"none": 1.0, "ngram": 0.5, "again": math.exp(0.3 * (-1) ** number)}
        runs = {name: replace(template, seconds=seconds[name]) for name in plan.configs if name in names}
        return MeasuredBlock(cell, number, ["p"], runs, dict.fromkeys(runs))

    template = blocks_of(make_plan(), toy_target, toy_prompts)[0].runs["none"]
    monkeypatch.setattr(measure_module.Bench, "measure", measure)
    blocks = blocks_of(plan, toy_target, toy_prompts)
    assert len(blocks) == LOOKS[-1], "the looks are used up"
    assert sum("ngram" in block.runs for block in blocks) == LOOKS[0]
    assert all("again" in block.runs for block in blocks)


def test_the_budget_ends_the_run(
    make_plan: MakePlan, toy_target: Target, toy_prompts: Prompts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of 2 + 2 s by their own word; an earlier run has used 8 of 11 s: no block fits any more."""
    timed(monkeypatch, 1.0, seconds=2.0)
    plan = make_plan(repeats=None, max_tokens=2, budget_s=11.0)
    complete = blocks_of(replace(plan, budget_s=1e6), toy_target, toy_prompts)
    finished = {(block.cell, block.number): block for block in complete[:2]}
    assert [block.number for block in blocks_of(plan, toy_target, toy_prompts, finished)] == [0, 1]


def test_arrivals_that_exceed_the_budget_are_refused_and_not_begun(
    make_plan: MakePlan, toy_target: Target, toy_prompts: Prompts
) -> None:
    plan = make_plan(repeats=None, rates=(0.02,), budget_s=10.0)
    with pytest.raises(UserError, match=r"--budget: a block at --rates 0\.02 takes \d+ s .* more than 10"):
        check_arrivals_fit(plan, toy_prompts)
    assert blocks_of(plan, toy_target, toy_prompts) == []
    check_arrivals_fit(replace(plan, budget_s=1e5), toy_prompts)
    check_arrivals_fit(replace(plan, repeats=1), toy_prompts)


def test_a_run_that_goes_on_repeats_nothing(
    make_plan: MakePlan, toy_target: Target, toy_prompts: Prompts, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(batch_sizes=(1, 2), max_tokens=4)
    whole = blocks_of(plan, toy_target, toy_prompts)
    finished = {(block.cell, block.number): block for block in whole[:4]}
    served: list[list[str]] = []

    def recording(engine: EmbeddedEngine, requests: Sequence[CompareRequest], *load: Any) -> BlockRun:
        served.append([request.prompt.prompt_id for request in requests])
        return run_block(engine, requests, *load)

    monkeypatch.setattr(measure_module, "run_block", recording)
    again = blocks_of(plan, toy_target, toy_prompts, finished)
    assert again[:4] == whole[:4], "the very same blocks"
    assert [(one.cell, one.number, one.prompt_ids) for one in again] == [
        (one.cell, one.number, one.prompt_ids) for one in whole
    ]
    num_warm_ups = 2 * len({block.cell for block in whole[4:]})
    assert len(served) == num_warm_ups + 2 * len(whole[4:])


def test_wrong_output_ends_a_comparison_early(
    make_plan: MakePlan, toy_target: Target, toy_prompts: Prompts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "verify", accept_everything)
    plan = make_plan(repeats=None)
    blocks = blocks_of(plan, toy_target, toy_prompts)
    assert len(blocks) == LOOKS[0]
    assert result_rows(blocks, plan, plan.interval_level(1))[1].verdict == "output differs"


def test_what_cannot_be_built_is_left_out_only_if_it_may(
    make_plan: MakePlan, toy_target: Target, toy_prompts: Prompts
) -> None:
    plan = make_plan("ngram,draft")
    with pytest.raises(UserError):
        build_bench(plan, toy_target, toy_prompts)
    bench = build_bench(replace(plan, optional=frozenset({"draft"})), toy_target, toy_prompts)
    assert list(bench.plan.configs) == list(bench.engines) == ["none", "ngram"]


def test_a_batch_that_memory_does_not_hold_is_refused(
    make_plan: MakePlan, toy_target: Target, toy_prompts: Prompts
) -> None:
    plan = make_plan(batch_sizes=(1, 5))
    config = plan.base
    # A row of the toy: 34 positions of 768 bytes; 3 rows fit into 100 kB.
    engine = config.engine.model_copy(update={"kv_cache_memory_gb": 1e-4})
    small = {name: one.model_copy(update={"engine": engine}) for name, one in plan.configs.items()}
    plan = replace(plan, configs=small)
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
        ("draft", 0.0, torch.float32, True),
        ("ngram", 0.7, torch.float32, True),
        ("ngram", 0.7, torch.bfloat16, False),
        ("draft", 0.7, torch.float32, False),
    ],
)
def test_where_equal_tokens_are_promised(
    proposer: str, temperature: float, dtype: torch.dtype, promised: bool
) -> None:
    assert promises_equal_tokens(Config(proposer=proposer), temperature, dtype) is promised


@pytest.mark.parametrize("is_faulty", [False, True])
def test_sampled_outputs_are_held_against_the_law(
    make_plan: MakePlan,
    toy_target: Target,
    toy_prompts: Prompts,
    monkeypatch: pytest.MonkeyPatch,
    is_faulty: bool,
) -> None:
    """Drafts at temperature 1 that are all believed: no token is promised, the law tells."""
    if is_faulty:
        monkeypatch.setattr(engine_module, "verify", accept_everything)
    plan = make_plan(temperatures=(1.0,), max_tokens=40, repeats=4, check_law=True)
    blocks = blocks_of(plan, toy_target, toy_prompts)
    none, ngram = result_rows(blocks, plan, level=0.95)
    assert none.law_tokens == ngram.law_tokens == 6 * 40 * 4
    assert none.law_p_value is not None
    assert ngram.law_p_value is not None
    assert (ngram.law_p_value < ALARM) == is_faulty
    assert (ngram.verdict == "output differs") == is_faulty
    assert all(len(found) == 40 for block in blocks for found in block.places.values())


def test_requests_that_arrive_at_random_are_compared_by_latency(
    make_plan: MakePlan, toy_target: Target, toy_prompts: Prompts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Speculation here brings no more tokens/s, but requests that end in half the time."""
    seen: list[tuple[int, int, Sequence[float] | None]] = []

    def run(
        engine: EmbeddedEngine,
        requests: Sequence[CompareRequest],
        batch_size: int,
        arrivals: Sequence[float] | None = None,
    ) -> BlockRun:
        seen.append((len(requests), batch_size, arrivals))
        total = 1.0 if engine.proposer else 2.0
        served = run_block(engine, requests, batch_size)
        return replace(served, seconds=10.0, request_times=[RequestTimes(0.1, 0.1, total)] * len(requests))

    monkeypatch.setattr(measure_module, "run_block", run)
    plan = make_plan(rates=(4.0,), max_tokens=3)
    rows = rows_of(plan, toy_target, toy_prompts)
    assert [(row.load, row.speedup) for row in rows] == [("4/s", 1.0), ("4/s", 2.0)]
    measured = [one for one in seen if one[2] is not None]
    assert {(count, batch_size) for count, batch_size, _ in measured} == {(18, plan.base.engine.max_num_seqs)}
    first, second = measured[0][2], measured[1][2]
    assert first == second, "the same arrivals for both"
    assert first is not None
    assert first[0] == 0.0
    assert 18 / 4 / 2 < first[-1] < 18 / 4 * 2
