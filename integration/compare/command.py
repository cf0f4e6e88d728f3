"""``foredraft compare``: which proposer suits these prompts, how sure is that, and is its output the same?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from foredraft.integration.cli_engine import (
    NO_OPTIONS,
    EngineOption,
    VllmOptions,
    checked_vllm_options,
)
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
from foredraft.integration.errors import UserError

REGRESSED = 1
INTERRUPTED = 130
NO_VARIANTS: list[str] = []
NO_ENDPOINTS: list[str] = []
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
        help="With --endpoint: requests arrive at random, so many a second, instead of --batch-sizes.",
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
    check_law: CheckLaw = False,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
    baseline_file: BaselineFile = None,
    journal_file: JournalFile = None,
    endpoints: Endpoints = NO_ENDPOINTS,
    rates: Rates = None,
    engine_name: EngineOption = "embedded",
    vllm_options: VllmOptions = NO_OPTIONS,
) -> None:
    """Measure proposers against plain decoding on the same prompts, and check that the output is the same.

    The configurations take turns block by block, in random order, with the
    same prompts and seeds. A verdict says faster or slower only where the
    interval of the speedup does; all intervals of a run hold together with
    95 %, however early it ends. Outputs end after 48 tokens unless
    --max-tokens says otherwise.

    At temperature 0 every output is compared with that of plain decoding;
    above 0 where equal tokens are promised (float32, drafts not drawn), and
    with --check-law every token is held against the law of the model.

    With --engine vllm the same is done with vLLM's engines: none is a stock
    vLLM, and vllm:ngram, vllm:suffix, vllm:draft_model are its own methods.

    With --endpoint the servers behind the addresses are compared under load
    instead: they bring their own models, and only texts are compared.

    Ctrl-C ends the run; what is complete is shown and written.
    """
    loaded = with_short_outputs(loaded)
    config = loaded.config
    workloads = split_lists("--workload", workload)
    if endpoints:
        only_offline: dict[str, Any] = {
            "--proposers": proposers,
            "--variant": variants,
            "--repeats": repeats,
            "--check-law": check_law,
            "--engine": engine_name != "embedded",
            "--vllm": vllm_options,
        }
        only_offline |= {"--html": html_file, "--baseline": baseline_file, "--journal": journal_file}
        _refuse(only_offline, "with --endpoint")
        _check_files({"--json": json_file})
        from foredraft.integration.compare.offline.prompts import load_workloads
        from foredraft.integration.compare.online.endpoint import parse_endpoints
        from foredraft.integration.compare.online.plan import OnlinePlan, closed_loops, parse_rates
        from foredraft.integration.compare.online.run import run_online

        online = OnlinePlan(
            endpoints=tuple(parse_endpoints(endpoints)),
            prompts=load_workloads(workloads, limit, by_category=by_category),
            loads=closed_loops(parse_batch_sizes(batch_sizes)) if rates is None else parse_rates(rates),
            temperatures=parse_temperatures(temperatures, config),
            max_tokens=config.sampling.max_tokens,
            seed=config.sampling.seed or 0,
            budget_s=budget,
            min_effect=min_effect,
        )
        _end(interrupted=not run_online(online, json_file))
        return
    _refuse({"--rates": rates}, "without --endpoint")
    configs, optional = compared_configs(loaded, proposers, variants)
    plan = ComparePlan(
        configs=configs,
        workloads=workloads,
        batch_sizes=parse_batch_sizes(batch_sizes),
        temperatures=parse_temperatures(temperatures, config),
        limit=limit,
        by_category=by_category,
        repeats=repeats,
        budget_s=budget,
        min_effect=min_effect,
        check_law=check_law,
        optional=optional,
        engine=engine_name,
        vllm_options=checked_vllm_options(engine_name, vllm_options),
    )
    if engine_name == "vllm":
        _refuse({"--check-law": check_law}, "with --engine vllm, whose logits cannot be asked for")
    request_params(config, config.sampling.temperature, seed=0)
    _check_files({"--json": json_file, "--html": html_file, "--journal": journal_file})

    from foredraft.integration.compare.run import Files, run  # torch is loaded here, so that --help is quick

    ended = run(plan, Files(json_file, html_file, baseline_file, journal_file))
    _end(interrupted=ended.interrupted, regressed=ended.regressed)


def _refuse(options: Mapping[str, Any], where: str) -> None:
    for option, value in options.items():
        if value:
            raise UserError(f"{option}: means nothing {where}")


def _check_files(files: Mapping[str, Path | None]) -> None:
    for option, path in files.items():
        if path is not None:
            check_writable(path, option)


def _end(*, interrupted: bool, regressed: bool = False) -> None:
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if regressed:
        raise typer.Exit(REGRESSED)
