"""One run of ``foredraft compare``: load, measure, show, write."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from foredraft.integration.compare.offline.backends import embedded_backend, vllm_backend
from foredraft.integration.compare.offline.journal import Journal, measured_what
from foredraft.integration.compare.offline.law_check import check_law_controls
from foredraft.integration.compare.offline.measure import Bench, MeasuredBlock
from foredraft.integration.compare.offline.progress import progress_line
from foredraft.integration.compare.offline.prompts import Prompt, encode_prompts, load_workloads
from foredraft.integration.compare.offline.session import run_comparison
from foredraft.integration.compare.plan import ComparePlan
from foredraft.integration.compare.report.page import report_page
from foredraft.integration.compare.results.document import RunFacts, result_document
from foredraft.integration.compare.results.model import ResultDocument
from foredraft.integration.compare.results.regressions import num_common, read_result
from foredraft.integration.compare.results.table import print_results
from foredraft.integration.compare.results.writing import write_json, write_text


@dataclass(frozen=True)
class Files:
    """Where results go to and come from; ``None`` = not wanted."""

    json: Path | None = None
    html: Path | None = None
    baseline: Path | None = None
    journal: Path | None = None


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    interrupted: bool
    regressed: bool


def run(plan: ComparePlan, files: Files) -> Ended:
    """Measure, show and write what there is, after an interruption as well.

    Raises:
        UserError: something of the plan or the files cannot be used.
    """
    if plan.check_law:
        check_law_controls(plan.base.sampling)
    started_at, started = datetime.now(UTC), time.monotonic()
    before = read_result(files.baseline) if files.baseline else None
    workloads = load_workloads(plan.workloads, plan.limit, by_category=plan.by_category)
    backend = vllm_backend(plan) if plan.engine == "vllm" else embedded_backend(plan)
    max_len = plan.base.engine.max_model_len or backend.max_len
    prompts = {name: encode_prompts(each, backend.tokenizer, max_len) for name, each in workloads.items()}
    bench = backend.build(prompts)
    _say_what_is_left_out(plan, bench.plan)
    ran = backend.environment
    journal = Journal(files.journal, measured_what(bench.plan, prompts, ran)) if files.journal else None
    blocks, interrupted = _measure(bench, prompts, journal)
    num_cells = len(bench.plan.cells(prompts))
    seconds = time.monotonic() - started
    facts = RunFacts(num_cells, ran, started_at, seconds, interrupted, before)
    document = result_document(blocks, bench.plan, facts)
    print_results(document, Console())
    _write(document, files)
    if before is not None and not num_common(before.results, document.results):
        _say("--baseline: it has no cell and configuration in common with this run")
    return Ended(interrupted, regressed=bool(document.regressions))


def _measure(
    bench: Bench, prompts: Mapping[str, Sequence[Prompt]], journal: Journal | None
) -> tuple[list[MeasuredBlock], bool]:
    """The blocks, and whether the user ended it before they were all there."""
    finished = dict(journal.finished) if journal else {}
    if finished:
        _say(f"--journal: going on after {len(finished)} blocks of an earlier run")
    blocks: list[MeasuredBlock] = []
    try:
        with progress_line() as progress:
            for block in run_comparison(bench, prompts, finished, progress):
                blocks.append(block)
                if journal:
                    journal.add(block)
    except KeyboardInterrupt:
        return blocks, True
    return blocks, False


def _write(document: ResultDocument, files: Files) -> None:
    if not document.results:
        return  # nothing is complete
    if files.json:
        write_json(files.json, document.model_dump(mode="json"))
    if files.html:
        write_text(files.html, report_page(document))


def _say_what_is_left_out(asked: ComparePlan, built: ComparePlan) -> None:
    left_out = [name for name in asked.configs if name not in built.configs]
    if left_out:
        _say(
            f"left out: {', '.join(left_out)} cannot draft for this model; name it in --proposers to see why"
        )


def _say(text: str) -> None:
    print(text, file=sys.stderr)
