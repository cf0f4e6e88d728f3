"""The result for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from foredraft.integration.compare.offline.law_check import ALARM
from foredraft.integration.compare.results.model import ResultDocument, ResultRow
from foredraft.integration.compare.results.provenance import run_label
from foredraft.integration.compare.results.table_parts import (
    empty_table,
    few_blocks,
    head_to_head_table,
    overall_table,
    print_advice,
    speedup_cells,
)
from foredraft.integration.compare.statistics.estimate import MIN_BLOCKS
from foredraft.integration.compare.variants import BASELINE

CAPTION = (
    "tokens/s: output tokens over wall time, reading the prompts included. speedup: over none, from paired "
    "blocks, of the mean latency where --rates are given; from and to: all intervals of this run hold "
    "together with 95 %. no diff.: no difference shown; too few: too few blocks for an interval."
)

VLLM_CAPTION = (
    "engine: vLLM. It does not tell the time of the target pass or the memory of its caches, so the ideal "
    "speedup, share of the forward and memory are not in the result."
)
_OUTPUT_WORDS = {
    True: Text("equal", style="green"),
    "near_tie": Text("near-tie", style="yellow"),
    False: Text("DIFFERS", style="bold red"),
    None: Text("unchecked", style="dim"),
}


def print_results(document: ResultDocument, console: Console) -> None:
    """One table per workload and temperature, one over all, then what deserves a sentence."""
    rows = document.results
    if not rows:
        return
    console.print(run_label(document.environment), markup=False, highlight=False)
    for workload, temperature in dict.fromkeys((row.workload, row.temperature) for row in rows):
        chosen = [row for row in rows if (row.workload, row.temperature) == (workload, temperature)]
        console.print(_table(workload, temperature, chosen))
    if document.overall:
        console.print(overall_table(document.overall))
    if document.head_to_head:
        console.print(head_to_head_table(document.head_to_head))
    console.print(CAPTION, style="dim")
    if document.environment.get("engine") == "vllm":
        console.print(VLLM_CAPTION, style="dim")
    for note in notes(rows):
        console.print(note, style="yellow", markup=False, highlight=False)
    print_advice(document, console)


def notes(rows: Sequence[ResultRow]) -> list[str]:
    """What deserves a sentence."""
    return [note for row in rows for note in _notes(row)]


def _table(workload: str, temperature: float, rows: Sequence[ResultRow]) -> Table:
    table = empty_table(f"workload {workload}, temperature {temperature:g}")
    load = "batch" if all(row.arrivals_per_s is None for row in rows) else "load"
    for heading in (load, "K"):
        table.add_column(heading, justify="right")
    table.add_column("config", overflow="fold")
    for heading in ("tok/s", "speedup", "from", "to"):
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    for heading in ("acc.\nrate", "acc.\nlen."):
        table.add_column(heading, justify="right")
    table.add_column("output")
    for number, row in enumerate(rows):
        is_last = number + 1 == len(rows) or rows[number + 1].config == BASELINE
        table.add_row(*_cells(row), end_section=is_last)
    return table


def _cells(row: ResultRow) -> list[Text]:
    rate = "-" if row.acceptance_rate is None else f"{row.acceptance_rate:.0%}"
    return [
        Text(row.load.removeprefix("batch ")),
        Text(row.k),
        Text(row.config),
        Text(f"{row.tokens_per_s:.1f}"),
        *speedup_cells(row),
        Text(rate),
        Text(f"{row.acceptance_length:.2f}"),
        _output_cell(row),
    ]


def _output_cell(row: ResultRow) -> Text:
    if row.law_p_value is None:
        few = row.outputs_equal is None and row.law_tokens is not None
        return Text("few tokens", style="dim") if few else _OUTPUT_WORDS[row.outputs_equal]
    if row.law_p_value < ALARM:
        return Text("LAW WRONG", style="bold red")
    return Text("law holds", style="green") if row.outputs_equal is None else _OUTPUT_WORDS[row.outputs_equal]


def _notes(row: ResultRow) -> list[str]:
    where = f"{row.workload}, {row.config}, {row.load}, temperature {row.temperature:g}"
    found = []
    first = row.first_difference
    if first is not None:
        measured = "one output ends there"
        if first.logit_gap is not None:
            measured = f"logit gap {first.logit_gap:.3g}, rounding {first.rounding:.3g}"
        found.append(
            f"{where}: prompt {first.prompt_id} differs at output token {first.position}: {measured}"
        )
    if row.law_p_value is not None and row.law_p_value < ALARM:
        found.append(f"{where}: the tokens are not drawn from the model's law (p = {row.law_p_value:.1g})")
    if row.law_tokens is not None and row.law_p_value is None:
        found.append(f"{where}: too few tokens ({row.law_tokens}) to check the law")
    elif row.outputs_equal is None and row.law_p_value is None:
        found.append(f"{where}: law not checked, only the speed was compared")
    if row.config != BASELINE and row.num_blocks < MIN_BLOCKS:
        found.append(f"{where}: {few_blocks(row.num_blocks)}; raise --budget, --repeats or --limit for more")
    if row.proposer_faults:
        found.append(f"{where}: the proposer failed {row.proposer_faults} times")
    return found
