"""The flags of ``foredraft compare``."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from foredraft.integration.cli_engine import EngineOption, VllmOptions
from foredraft.integration.cli_explain import Explain
from foredraft.integration.compare.plan import DEFAULT_BUDGET_S
from foredraft.integration.compare.statistics.verdict import MIN_EFFECT
from foredraft.integration.errors import UserError

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
Limit = Annotated[int | None, typer.Option(help="Prompts per workload at most.", metavar="PROMPTS")]
Budget = Annotated[
    float, typer.Option(metavar="SECONDS", help="No block begins that would end later than this.")
]
Repeats = Annotated[
    int | None,
    typer.Option(
        metavar="TIMES",
        help="Serve each prompt so often and look once at the end, whatever the verdict and the time. "
        "Default: until each verdict is clear or the budget is spent.",
    ),
]
MinEffect = Annotated[float, typer.Option(metavar="SHARE", help="Differences below this are not called.")]
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
    typer.Option(metavar="FACTOR", help="With --traffic: requests arrive so much faster."),
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
    """What the command line says beside the configuration; the help of each is with its type.

    Raises:
        UserError: a number out of range.
    """

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
    explain: Explain = False
    engine_name: EngineOption = "embedded"
    vllm_options: VllmOptions = field(default_factory=list)
    endpoints: Endpoints = field(default_factory=list)
    rates: Rates = None
    traffic: Traffic = None
    traffic_speed: TrafficSpeed = 1.0
    model_names: ModelNames = field(default_factory=list)
    api_keys: ApiKeys = field(default_factory=list)

    def __post_init__(self) -> None:
        # Not by typer: it does not say what was given, and lets NaN through where only one bound is set.
        _check_range("--limit", self.limit, 1)
        _check_range("--repeats", self.repeats, 1)
        _check_range("--budget", self.budget, 1)
        _check_range("--min-effect", self.min_effect, 0, 1)
        _check_range("--traffic-speed", self.traffic_speed, 0.001)


def _check_range(option: str, value: float | None, low: float, high: float = math.inf) -> None:
    if value is not None and not low <= value <= high:
        allowed = f"{low:g} or more" if high == math.inf else f"from {low:g} to {high:g}"
        raise UserError(f"{option}: should be {allowed} (got {value:g})")
