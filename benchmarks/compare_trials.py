"""Can one believe `foredraft compare`? Repeats whole comparisons whose right answer is known, and counts.

    aa            a configuration against itself: "no difference shown" is right
    slowed        against itself with a sleep in each step that costs exactly 10 %: "slower", around 0.90x
    faulty        greedy, with a verifier that accepts each 200th wrong drafted token: "output differs"
    misreporting  temperature 1, a proposer that draws from one law and reports a sharper one: "law is wrong"

    python benchmarks/compare_trials.py aa --repetitions 20
    python benchmarks/compare_trials.py slowed --proposer draft --workload chat --budget 60
    python benchmarks/compare_trials.py faulty --batch-size 8

Prints a line per repetition and one line of JSON last.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch
from paired import print_json
from torch import Tensor

from foredraft.integration.compare.offline.engines import build_bench
from foredraft.integration.compare.offline.law_check import ALARM
from foredraft.integration.compare.offline.prompts import encode_prompts, load_workloads
from foredraft.integration.compare.offline.session import run_comparison
from foredraft.integration.compare.plan import DEFAULT_MAX_TOKENS, ComparePlan
from foredraft.integration.compare.progress import progress_line
from foredraft.integration.compare.results.model import ResultRow
from foredraft.integration.compare.results.rows import result_rows
from foredraft.integration.config import Config, replaced
from foredraft.integration.embedded.build import Target, load_target
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.proposers import DraftContext
from foredraft.verifier import Draft, SamplingBatch, Verdict, verify

CHANGED = "changed"
SLOWED_RATIO = 0.9
WRONG_EVERY = 200
SHARPER = 1.5


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trial", choices=TRIALS)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--proposer", help="default none for aa and slowed, else draft")
    parser.add_argument("--workload", default="chat", help="a built-in workload or a JSONL file")
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds per repetition")
    parser.add_argument("--repetitions", type=int, default=20)
    options = parser.parse_args()
    is_speed = options.trial in ("aa", "slowed")
    options.proposer = options.proposer or ("none" if is_speed else "draft")
    target = load_target(Config(model=options.model, dtype=options.dtype))
    rows = []
    for number in range(options.repetitions):
        rows.append(repetition(options, target, number))
        print(shown(rows[-1]), flush=True)
    right = sum(RIGHT[options.trial](row) for row in rows)
    covered = sum(covers(row, SLOWED_RATIO if options.trial == "slowed" else 1.0) for row in rows)
    print(f"{options.trial}: right in {right} of {len(rows)}, truth within the interval in {covered}")
    results = {"right": right, "covered": covered, "rows": [row.model_dump(mode="json") for row in rows]}
    print_json("compare_trials", vars(options), results)


def repetition(options: argparse.Namespace, target: Target, number: int) -> ResultRow:
    """The row of the changed configuration in one whole comparison."""
    temperature = 1.0 if options.trial == "misreporting" else 0.0
    sampling = {"max_tokens": DEFAULT_MAX_TOKENS, "temperature": temperature, "seed": 1000 * number}
    base = Config(model=options.model, dtype=options.dtype, proposer="none", sampling=sampling)
    plan = ComparePlan(
        configs={"none": base, CHANGED: replaced(base, proposer=options.proposer)},
        workloads=(options.workload,),
        batch_sizes=(options.batch_size,),
        temperatures=(temperature,),
        budget_s=options.budget,
        check_law=temperature > 0,
    )
    loaded = load_workloads(plan.workloads, None, by_category=False)
    prompts = {name: encode_prompts(each, target.tokenizer, target.max_len) for name, each in loaded.items()}
    bench = build_bench(plan, target, prompts)
    TRIALS[options.trial](bench.engines[CHANGED])
    with progress_line() as progress:
        blocks = list(run_comparison(bench, prompts, {}, progress))
    return next(row for row in result_rows(blocks, plan, plan.interval_level(1)) if row.config == CHANGED)


def unchanged(engine: EmbeddedEngine) -> None:
    """The same twice."""


def slow_down(engine: EmbeddedEngine) -> None:
    """Each step sleeps for a ninth of its time; what one sleep is late, the next makes up for."""
    step, owed = engine.step, 0.0

    def slowed() -> Any:
        nonlocal owed
        started = time.perf_counter()
        outputs = step()
        ended = time.perf_counter()
        owed += (ended - started) * (1 / SLOWED_RATIO - 1)
        time.sleep(max(owed, 0.0))
        owed -= time.perf_counter() - ended
        return outputs

    engine.step = slowed  # type: ignore[method-assign]


def accept_wrong_tokens(engine: EmbeddedEngine) -> None:
    """Each ``WRONG_EVERY``-th token that the verifier throws out is taken after all, in this engine alone."""
    step, num_wrong = engine.step, 0

    def faulty_verify(logits: Tensor, draft: Draft, sampling: SamplingBatch, rule: Any) -> Verdict:
        nonlocal num_wrong
        verdict = verify(logits, draft, sampling, rule)
        token_ids, num_accepted = verdict.token_ids.clone(), verdict.num_accepted.clone()
        for row in (num_accepted < draft.lengths).nonzero().flatten().tolist():
            num_wrong += 1
            if num_wrong % WRONG_EVERY == 0:
                place = int(num_accepted[row])
                # The drafted token in place of the recovered one, and what stood there after it.
                token_ids[row, place + 1] = token_ids[row, place]
                token_ids[row, place] = draft.token_ids[row, place]
                num_accepted[row] += 1
        return Verdict(token_ids, num_accepted)

    def faulty() -> Any:
        with patch("foredraft.integration.embedded.engine.verify", faulty_verify):
            return step()

    engine.step = faulty  # type: ignore[method-assign]


def misreport(engine: EmbeddedEngine) -> None:
    """The proposer draws from its law and reports one that is sharper than it was."""
    assert engine.proposer is not None, "misreporting needs a proposer that draws"
    propose = engine.proposer.propose

    def sharper(context: DraftContext) -> Draft:
        draft = propose(context)
        if draft.probs is None:
            return draft
        probs = draft.probs.probs**SHARPER
        probs = probs / probs.sum(-1, keepdim=True).clamp_min(torch.finfo(probs.dtype).tiny)
        return replace(draft, probs=replace(draft.probs, probs=probs))

    engine.proposer.propose = sharper  # type: ignore[method-assign]


def covers(row: ResultRow, truth: float) -> bool:
    """Whether the interval of the speedup holds ``truth``."""
    return (
        row.speedup_low is not None
        and row.speedup_high is not None
        and row.speedup_low <= truth <= row.speedup_high
    )


def shown(row: ResultRow) -> str:
    ends = "no interval" if row.speedup_low is None else f"{row.speedup_low:.3f} to {row.speedup_high:.3f}"
    law = "" if row.law_p_value is None else f", law p = {row.law_p_value:.2g}"
    return (
        f"{row.verdict}: {row.speedup:.3f}x ({ends}), {row.num_blocks} blocks, "
        f"{row.emitted_tokens} tokens, output {row.outputs_equal}{law}"
    )


TRIALS: dict[str, Callable[[EmbeddedEngine], None]] = {
    "aa": unchanged,
    "slowed": slow_down,
    "faulty": accept_wrong_tokens,
    "misreporting": misreport,
}
RIGHT: dict[str, Callable[[ResultRow], bool]] = {
    "aa": lambda row: row.verdict == "no difference shown",
    "slowed": lambda row: row.verdict == "slower",
    "faulty": lambda row: row.verdict == "output differs",
    "misreporting": lambda row: row.law_p_value is not None and row.law_p_value < ALARM,
}


if __name__ == "__main__":
    main()
