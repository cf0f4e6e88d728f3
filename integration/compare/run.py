"""One run of ``foredraft compare``: load, measure, show, write."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from functools import partial

from rich.console import Console

from foredraft.integration.cli_explain import explain_decisions, lengths_summary
from foredraft.integration.compare.files import Ended, Files, write_results
from foredraft.integration.compare.journal import Journal, collect_blocks
from foredraft.integration.compare.offline.backends import embedded_backend, vllm_backend
from foredraft.integration.compare.offline.identity import measured_what, workload_digests
from foredraft.integration.compare.offline.law_check import check_law_controls
from foredraft.integration.compare.offline.measure import MeasuredBlock
from foredraft.integration.compare.offline.prompts import encode_prompts, load_workloads
from foredraft.integration.compare.offline.session import check_arrivals_fit, run_comparison
from foredraft.integration.compare.plan import ComparePlan
from foredraft.integration.compare.report.offline import report_page
from foredraft.integration.compare.results.document import RunFacts, result_document
from foredraft.integration.compare.results.model import ResultDocument
from foredraft.integration.compare.results.regressions import check_same_requests, num_common, read_result
from foredraft.integration.compare.results.table import print_results
from foredraft.integration.compare.variants import BASELINE


def run(plan: ComparePlan, files: Files) -> Ended:
    """Measure, show and write what there is, after an interruption as well.

    Raises:
        UserError: something of the plan or the files cannot be used.
    """
    if plan.check_law:
        check_law_controls(plan.base.sampling)
    started_at, started = datetime.now(UTC), time.monotonic()
    before = read_result(files.baseline, ResultDocument) if files.baseline else None
    workloads = load_workloads(plan.workloads, plan.limit, by_category=plan.by_category)
    backend = vllm_backend(plan) if plan.engine == "vllm" else embedded_backend(plan)
    max_len = plan.base.engine.max_model_len or backend.max_len
    prompts = {name: encode_prompts(each, backend.tokenizer, max_len) for name, each in workloads.items()}
    workloads_now = workload_digests(plan, prompts)
    if before is not None:
        check_same_requests(before.workloads, workloads_now)
    bench = backend.build(prompts)
    check_arrivals_fit(bench.plan, prompts)
    _say_what_is_left_out(plan, bench.plan)
    explained = {name: engine for name, engine in bench.engines.items() if plan.explain and name != BASELINE}
    for name, engine in explained.items():
        explain_decisions(engine, name)
    ran = backend.environment
    measured = measured_what(bench.plan, prompts, ran)
    journal = Journal(files.journal, MeasuredBlock, measured) if files.journal else None
    blocks, interrupted = collect_blocks(partial(run_comparison, bench, prompts), journal)
    for name, engine in explained.items():
        _say(lengths_summary(engine, name))
    num_cells = len(bench.plan.cells(prompts))
    seconds = time.monotonic() - started
    facts = RunFacts(num_cells, ran, started_at, seconds, interrupted, before, workloads_now)
    document = result_document(blocks, bench.plan, facts)
    print_results(document, Console())
    write_results(document, lambda: report_page(document), files)
    if before is not None and not num_common(before.results, document.results):
        _say("--baseline: it has no cell and configuration in common with this run")
    return Ended(interrupted, regressed=bool(document.regressions))


def _say_what_is_left_out(asked: ComparePlan, built: ComparePlan) -> None:
    left_out = [name for name in asked.configs if name not in built.configs]
    if left_out:
        _say(
            f"left out: {', '.join(left_out)} cannot draft for this model; name it in --proposers to see why"
        )


def _say(text: str) -> None:
    print(text, file=sys.stderr)
