"""``foredraft align``: does this draft fit this target on these prompts, and what would it gain?"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from foredraft.integration.align.plan import AlignPlan, align_config, load_prompts
from foredraft.integration.cli_options import with_config
from foredraft.integration.compare.plan import MAX_BATCH_SIZE, parse_temperatures, split_lists
from foredraft.integration.compare.results.writing import check_writable
from foredraft.integration.config_sources import LoadedConfig

INTERRUPTED = 130
DEFAULT_WORKLOADS = ["chat"]

Workloads = Annotated[
    list[str],
    typer.Option(help="Built-in name or JSONL file; comma list, may be repeated.", metavar="NAME|FILE"),
]
Limit = Annotated[int | None, typer.Option(min=1, help="Prompts per workload at most.", metavar="PROMPTS")]
Seconds = Annotated[float, typer.Option(min=1, help="To measure for at most, loading not included.")]
DraftTokens = Annotated[
    int | None,
    typer.Option(min=1, max=32, help="Tokens drafted per step; default num_draft_tokens, or 4.", metavar="K"),
]
BatchSize = Annotated[int, typer.Option(min=1, max=MAX_BATCH_SIZE, help="Requests in flight.")]
Temperatures = Annotated[str, typer.Option(metavar="LIST", help="Several in one run.")]
JsonFile = Annotated[
    Path | None, typer.Option("--json", help="Also write the result to this file.", metavar="FILE")
]


@with_config
def align(
    loaded: LoadedConfig,
    workload: Workloads = DEFAULT_WORKLOADS,
    limit: Limit = None,
    seconds: Seconds = 60.0,
    draft_tokens: DraftTokens = None,
    batch_size: BatchSize = 8,
    temperatures: Temperatures = "0,1",
    json_file: JsonFile = None,
) -> None:
    """Measure how often the target accepts a proposer's tokens on your prompts, before you deploy it.

    Shows acceptance per category and per place of the draft, what drafting and
    verifying cost here, and the speedup that follows for each number of drafted
    tokens. The proposer is draft unless another one is named; outputs end after
    64 tokens unless --max-tokens says otherwise.

    Ctrl-C ends the run; what has been measured is shown and written.
    """
    plan = AlignPlan(
        config=align_config(loaded, draft_tokens),
        workloads=split_lists("--workload", workload),
        temperatures=parse_temperatures(temperatures, loaded.config),
        batch_size=batch_size,
        seconds=seconds,
        limit=limit,
    )
    if json_file is not None:
        check_writable(json_file)
    if not _run(plan, json_file):
        raise typer.Exit(INTERRUPTED)


def _run(plan: AlignPlan, json_file: Path | None) -> bool:
    """Measure, show and write; ``False`` if the user interrupted it."""
    from foredraft.integration.align.document import result_document
    from foredraft.integration.align.measure import AlignPrompt
    from foredraft.integration.align.session import Measurement
    from foredraft.integration.align.table import print_result
    from foredraft.integration.compare.offline.prompts import encode_prompts
    from foredraft.integration.compare.results.provenance import environment, run_label
    from foredraft.integration.compare.results.writing import write_json
    from foredraft.integration.embedded.build import load_target

    started_at = datetime.now(UTC)
    chosen = load_prompts(plan)
    target = load_target(plan.config)
    max_len = plan.config.engine.max_model_len or target.max_len
    encoded = encode_prompts([prompt for _, prompt in chosen], target.tokenizer, max_len)
    prompts = [
        AlignPrompt(category, prompt.token_ids) for (category, _), prompt in zip(chosen, encoded, strict=True)
    ]
    measurement, interrupted = Measurement(plan, target, prompts), False
    try:
        measurement.run()
    except KeyboardInterrupt:
        interrupted = True
    console = Console()
    console.print(
        f"{run_label(environment(target))}, proposer {plan.config.proposer}", markup=False, highlight=False
    )
    for result in measurement.results:
        print_result(result, console)
    if json_file is not None and measurement.results:
        write_json(
            json_file,
            result_document(measurement.results, plan, target, started_at, interrupted=interrupted),
        )
    return not interrupted
