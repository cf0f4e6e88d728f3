"""One run of ``foredraft compare --endpoint``: ask, measure, show, write."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from functools import partial

from rich.console import Console

from foredraft.integration.compare.files import Ended, Files, write_results
from foredraft.integration.compare.journal import Journal, collect_blocks
from foredraft.integration.compare.online.blocks import OnlineBlock
from foredraft.integration.compare.online.client import find_model
from foredraft.integration.compare.online.document import OnlineFacts, online_document
from foredraft.integration.compare.online.identity import measured_online
from foredraft.integration.compare.online.measure import Driver
from foredraft.integration.compare.online.model import OnlineDocument
from foredraft.integration.compare.online.plan import OnlinePlan
from foredraft.integration.compare.online.requests import digests
from foredraft.integration.compare.online.session import run_online_comparison
from foredraft.integration.compare.online.table import print_online
from foredraft.integration.compare.report.online import online_report_page
from foredraft.integration.compare.results.regressions import check_same_requests, num_common, read_result

FIRST_ANSWER_TIMEOUT_S = 30.0


def run_online(plan: OnlinePlan, files: Files) -> Ended:
    """Measure, show and write what there is, after an interruption as well.

    Raises:
        UserError: a server does not answer, or one of the files cannot be used.
    """
    started_at, started = datetime.now(UTC), time.monotonic()
    before = read_result(files.baseline, OnlineDocument) if files.baseline else None
    if before is not None:
        check_same_requests(before.workloads, digests(plan.requests))
    models = {one.name: find_model(one, FIRST_ANSWER_TIMEOUT_S) for one in plan.endpoints}
    measured = measured_online(plan, models)
    journal = Journal(files.journal, OnlineBlock, measured) if files.journal else None
    blocks, interrupted = collect_blocks(partial(run_online_comparison, Driver(plan, models)), journal)
    seconds = time.monotonic() - started
    document = online_document(blocks, plan, OnlineFacts(models, started_at, seconds, interrupted, before))
    print_online(document, Console())
    write_results(document, lambda: online_report_page(document), files)
    if before is not None and not num_common(before.results, document.results):
        print("--baseline: it has no cell and server in common with this run", file=sys.stderr)
    compared = any(row.num_blocks for row in document.results if not row.is_baseline)
    return Ended(interrupted, bool(document.regressions), compared)
