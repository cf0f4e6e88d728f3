"""``foredraft compare``: which proposer suits these prompts, how sure is that, and is its output the same?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foredraft.integration.cli_options import with_config
from foredraft.integration.compare.plan import (
    DEFAULT_BUDGET_S,
    ComparePlan,
    compared_configs,
    parse_batch_sizes,
    parse_temperatures,
    request_params,
    split_lists,
    with_short_outputs,
)
from foredraft.integration.compare.results.writing import check_writable
from foredraft.integration.compare.statistics.verdict import MIN_EFFECT
from foredraft.integration.config_sources import LoadedConfig

REGRESSED = 1
INTERRUPTED = 130
NO_VARIANTS: list[str] = []
DEFAULT_WORKLOADS = ["chat", "code_edit", "copy_heavy", "summarize_quotes"]

Proposers = Annotated[
    str | None,
    typer.Option(
        metavar="LIST",
        help="Comma list, such as none,ngram; none, the baseline, always runs. Default: that of --proposer, "
        "else all that can draft for the model; with --variant: none of them.",
    ),
]
Variants = Annotated[
    list[str],
    typer.Option(
        "--variant",
        metavar="NAME:KEY=VALUE,...|NAME=FILE",
        help="One more configuration: short:proposer=ngram,num_draft_tokens=3 or mine=mine.yaml, on top of "
        "the flags. May be repeated.",
    ),
]
Workloads = Annotated[
    list[str],
    typer.Option(help="Built-in name or JSONL file; comma list, may be repeated.", metavar="NAME|FILE"),
]
ByCategory = Annotated[
    bool, typer.Option("--by-category", help="Measure each category of a workload by itself.")
]
BatchSizes = Annotated[str, typer.Option(metavar="LIST", help="Requests in flight; comma list.")]
Temperatures = Annotated[
    str | None,
    typer.Option(metavar="LIST", help="Several in one run, such as 0,0.8. Default: that of --temperature."),
]
Limit = Annotated[int | None, typer.Option(min=1, help="Prompts per workload at most.", metavar="PROMPTS")]
Budget = Annotated[
    float, typer.Option(min=1, metavar="SECONDS", help="No block begins that would end later than this.")
]
Repeats = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="TIMES",
        help="Serve each prompt so often and look once at the end, whatever the verdict and the time. "
        "Default: until each verdict is clear or the budget is spent.",
    ),
]
MinEffect = Annotated[
    float, typer.Option(min=0, max=1, metavar="SHARE", help="Differences below this are not called.")
]
JsonFile = Annotated[
    Path | None, typer.Option("--json", help="Also write the result to this file.", metavar="FILE")
]
HtmlFile = Annotated[
    Path | None, typer.Option("--html", help="Also write a page with plots to this file.", metavar="FILE")
]
BaselineFile = Annotated[
    Path | None,
    typer.Option(
        "--baseline",
        metavar="FILE",
        help="A result that --json wrote: show what is worse now; then the exit code is 1.",
    ),
]
JournalFile = Annotated[
    Path | None,
    typer.Option(
        "--journal",
        metavar="FILE",
        help="Keep each finished block here; a run that was killed goes on from it.",
    ),
]


@with_config
def compare(
    loaded: LoadedConfig,
    proposers: Proposers = None,
    variants: Variants = NO_VARIANTS,
    workload: Workloads = DEFAULT_WORKLOADS,
    by_category: ByCategory = False,
    batch_sizes: BatchSizes = "1,8",
    temperatures: Temperatures = None,
    limit: Limit = None,
    budget: Budget = DEFAULT_BUDGET_S,
    repeats: Repeats = None,
    min_effect: MinEffect = MIN_EFFECT,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
    baseline_file: BaselineFile = None,
    journal_file: JournalFile = None,
) -> None:
    """Measure proposers against plain decoding on the same prompts, and check that the output is the same.

    The configurations take turns block by block, in random order, with the
    same prompts and seeds. A verdict says faster or slower only where the
    interval of the speedup does; all intervals of a run hold together with
    95 %, however early it ends. Outputs end after 48 tokens unless
    --max-tokens says otherwise.

    At temperature 0 every output is compared with that of plain decoding;
    above 0 where equal tokens are promised (float32, drafts not drawn).

    Ctrl-C ends the run; what is complete is shown and written.
    """
    loaded = with_short_outputs(loaded)
    config = loaded.config
    configs, optional = compared_configs(loaded, proposers, variants)
    plan = ComparePlan(
        configs=configs,
        workloads=split_lists("--workload", workload),
        batch_sizes=parse_batch_sizes(batch_sizes),
        temperatures=parse_temperatures(temperatures, config),
        limit=limit,
        by_category=by_category,
        repeats=repeats,
        budget_s=budget,
        min_effect=min_effect,
        optional=optional,
    )
    request_params(config, config.sampling.temperature, seed=0)
    for option, path in (("--json", json_file), ("--html", html_file), ("--journal", journal_file)):
        if path is not None:
            check_writable(path, option)

    from foredraft.integration.compare.run import Files, run  # torch is loaded here, so that --help is quick

    ended = run(plan, Files(json_file, html_file, baseline_file, journal_file))
    if ended.interrupted:
        raise typer.Exit(INTERRUPTED)
    if ended.regressed:
        raise typer.Exit(REGRESSED)
