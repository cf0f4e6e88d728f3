"""The flags of ``foredraft compare``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from foredraft.integration.cli_engine import EngineOption, VllmOptions
from foredraft.integration.compare.plan import DEFAULT_BUDGET_S
from foredraft.integration.compare.statistics.verdict import MIN_EFFECT

DEFAULT_WORKLOADS = ["chat", "code_edit", "copy_heavy", "summarize_quotes"]
DEFAULT_BATCH_SIZES = "1,8"

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
CheckLaw = Annotated[
    bool,
    typer.Option(
        "--check-law", help="Above temperature 0: hold every token against the law it should be drawn from."
    ),
]
JsonFile = Annotated[
    Path | None, typer.Option("--json", help="Also write the result to this file.", metavar="FILE")
]
HtmlFile = Annotated[
    Path | None, typer.Option("--html", help="Also write a page with plots to this file.", metavar="FILE")
]
Endpoints = Annotated[
    list[str],
    typer.Option(
        "--endpoint",
        metavar="NAME=URL",
        help="Compare running OpenAI-compatible servers instead; twice or more, the first is the baseline.",
    ),
]
Rates = Annotated[
    str | None,
    typer.Option(
        metavar="LIST",
        help="Requests arrive at random, so many a second, in place of --batch-sizes: compares latencies.",
    ),
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

Traffic = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="With --endpoint: recorded requests, as `foredraft traffic` writes them, instead of --workload.",
    ),
]
TrafficSpeed = Annotated[
    float,
    typer.Option(min=0.001, metavar="FACTOR", help="With --traffic: requests arrive so much faster."),
]
ModelNames = Annotated[
    list[str],
    typer.Option(
        "--model-name",
        metavar="[SERVER=]NAME",
        help="With --endpoint: the model to ask for, of all servers or of one. Default: the first it lists.",
    ),
]
ApiKeys = Annotated[
    list[str],
    typer.Option(
        "--api-key-env",
        metavar="[SERVER=]VARIABLE",
        help="With --endpoint: environment variable that holds the key, of all servers or of one. "
        "Default: OPENAI_API_KEY where it is set.",
    ),
]


@dataclass(frozen=True)
class CompareOptions:
    """What the command line says beside the configuration; the help of each is with its type."""

    proposers: Proposers = None
    variants: Variants = field(default_factory=list)
    workload: Workloads = field(default_factory=lambda: list(DEFAULT_WORKLOADS))
    by_category: ByCategory = False
    batch_sizes: BatchSizes = DEFAULT_BATCH_SIZES
    temperatures: Temperatures = None
    limit: Limit = None
    budget: Budget = DEFAULT_BUDGET_S
    repeats: Repeats = None
    min_effect: MinEffect = MIN_EFFECT
    check_law: CheckLaw = False
    json_file: JsonFile = None
    html_file: HtmlFile = None
    baseline_file: BaselineFile = None
    journal_file: JournalFile = None
    engine_name: EngineOption = "embedded"
    vllm_options: VllmOptions = field(default_factory=list)
    endpoints: Endpoints = field(default_factory=list)
    rates: Rates = None
    traffic: Traffic = None
    traffic_speed: TrafficSpeed = 1.0
    model_names: ModelNames = field(default_factory=list)
    api_keys: ApiKeys = field(default_factory=list)
