"""One run of ``foredraft compare --endpoint``: ask, measure, show, write."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from foredraft.integration.compare.offline.progress import progress_line
from foredraft.integration.compare.online.client import first_model
from foredraft.integration.compare.online.measure import OnlineBlock, measure_online
from foredraft.integration.compare.online.model import OnlineDocument
from foredraft.integration.compare.online.plan import OnlinePlan
from foredraft.integration.compare.online.rows import online_rows
from foredraft.integration.compare.online.table import print_online
from foredraft.integration.compare.results.provenance import command_line, commit
from foredraft.integration.compare.results.writing import write_json

FIRST_ANSWER_TIMEOUT_S = 30.0
CHECKED = "texts at temperature 0, which rounding may change on a server; above 0 the law was not checked"


def run_online(plan: OnlinePlan, json_file: Path | None) -> bool:
    """Measure, show and write what there is; ``False`` if the user interrupted it.

    Raises:
        UserError: a server does not answer.
    """
    started_at, started = datetime.now(UTC), time.monotonic()
    models = {one.name: first_model(one, FIRST_ANSWER_TIMEOUT_S) for one in plan.endpoints}
    blocks: list[OnlineBlock] = []
    interrupted = False
    try:
        with progress_line() as progress:
            for block in measure_online(plan, models, progress.show):
                blocks.append(block)
    except KeyboardInterrupt:
        interrupted = True
    document = OnlineDocument(
        results=online_rows(blocks, plan, models),
        interval_level=plan.interval_level,
        min_effect=plan.min_effect,
        budget_s=plan.budget_s,
        max_tokens=plan.max_tokens,
        sampled_output=CHECKED,
        command=command_line(),
        commit=commit(),
        seed=plan.seed,
        started_at=started_at.isoformat(timespec="seconds"),
        seconds=time.monotonic() - started,
        interrupted=interrupted,
    )
    print_online(document.results, Console())
    if json_file and document.results:
        write_json(json_file, document.model_dump(mode="json"))
    return not interrupted
