"""``foredraft compare``: which proposer suits these prompts, and is its output the same?"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from foredraft.integration.cli_options import with_config
from foredraft.integration.compare.plan import (
    ComparePlan,
    parse_batch_sizes,
    parse_temperatures,
    proposer_configs,
    request_params,
    split_lists,
)
from foredraft.integration.compare.results.json_path import check_writable
from foredraft.integration.config_sources import LoadedConfig

INTERRUPTED = 130
DEFAULT_WORKLOADS = ["chat", "copy_heavy"]

Proposers = Annotated[
    str | None,
    typer.Option(
        metavar="LIST",
        help="Comma list, such as none,ngram; none, the baseline, always runs. Default: the configured one.",
    ),
]
Workloads = Annotated[
    list[str],
    typer.Option(help="Built-in name or JSONL file; comma list, may be repeated.", metavar="NAME|FILE"),
]
BatchSizes = Annotated[str, typer.Option(metavar="LIST", help="Requests in flight; comma list.")]
Temperatures = Annotated[
    str | None,
    typer.Option(metavar="LIST", help="Several in one run, such as 0,0.8. Default: that of --temperature."),
]
Limit = Annotated[int | None, typer.Option(min=1, help="Prompts per workload at most.", metavar="PROMPTS")]
Repeats = Annotated[int, typer.Option(min=1, help="How often each prompt is served.", metavar="TIMES")]
JsonFile = Annotated[
    Path | None, typer.Option("--json", help="Also write the result to this file.", metavar="FILE")
]


@with_config
def compare(
    loaded: LoadedConfig,
    proposers: Proposers = None,
    workload: Workloads = DEFAULT_WORKLOADS,
    batch_sizes: BatchSizes = "1,8",
    temperatures: Temperatures = None,
    limit: Limit = None,
    repeats: Repeats = 1,
    json_file: JsonFile = None,
) -> None:
    """Measure proposers against plain decoding on the same prompts, and check that the output is the same.

    The proposers take turns block by block, with the same seeds. Throughput
    counts output tokens over wall time, reading the prompts included. At
    temperature 0 every output is compared with that of plain decoding; above
    0 where equal tokens are promised (float32, drafts that are not drawn).

    Ctrl-C ends the run; what is complete is shown and written.
    """
    config = loaded.config
    plan = ComparePlan(
        configs=proposer_configs(config, proposers),
        workloads=split_lists("--workload", workload),
        batch_sizes=parse_batch_sizes(batch_sizes),
        temperatures=parse_temperatures(temperatures, config),
        limit=limit,
        repeats=repeats,
    )
    request_params(config, config.sampling.temperature, seed=0)
    if json_file is not None:
        check_writable(json_file)
    if not _run(plan, json_file):
        raise typer.Exit(INTERRUPTED)


def _run(plan: ComparePlan, json_file: Path | None) -> bool:
    """Measure, show and write; ``False`` if the user interrupted it."""
    from foredraft.integration.compare.offline.prompts import encode_prompts, load_workloads
    from foredraft.integration.compare.offline.session import run_comparison
    from foredraft.integration.compare.results.document import result_document, run_label, write_json
    from foredraft.integration.compare.results.rows import result_rows
    from foredraft.integration.compare.results.table import print_results
    from foredraft.integration.embedded.build import load_target

    started_at = datetime.now(UTC)
    workloads = load_workloads(plan)
    target = load_target(plan.base)
    max_len = plan.base.engine.max_model_len or target.max_len
    prompts = {name: encode_prompts(each, target.tokenizer, max_len) for name, each in workloads.items()}
    blocks, interrupted = [], False
    try:
        for block in run_comparison(plan, target, prompts):
            blocks.append(block)
    except KeyboardInterrupt:
        interrupted = True
    rows = result_rows(blocks)
    print_results(rows, run_label(target), Console())
    if json_file is not None and rows:
        document = result_document(rows, target, plan.seed, started_at, interrupted=interrupted)
        write_json(json_file, document)
    return not interrupted
