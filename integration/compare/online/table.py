"""The result of an online comparison for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from foredraft.integration.compare.online.model import OnlineDocument, OnlineRow
from foredraft.integration.compare.results.model import Percentiles
from foredraft.integration.compare.results.table_parts import (
    empty_table,
    overall_table,
    print_advice,
    speedup_cells,
)

CAPTION = (
    "first, token: median milliseconds to the first token and per further one, with p99. speedup: over the "
    "first server, from paired blocks: of tokens/s, under arrivals of the mean latency. All intervals of "
    "this run hold together with 95 %. Only texts at temperature 0 were compared; a law was not checked."
)
RIGHT = ("tok/s", "first\nms", "p99", "token\nms", "p99", "acc.\nrate", "acc.\nlen.", "speedup", "from", "to")


def print_online(document: OnlineDocument, console: Console) -> None:
    """One table per workload and condition, one over all, then what deserves a sentence."""
    rows = document.results
    if not rows:
        return
    for workload, *conditions in dict.fromkeys((row.workload, *row.conditions) for row in rows):
        chosen = [row for row in rows if (row.workload, *row.conditions) == (workload, *conditions)]
        console.print(_table(", ".join([f"workload {workload}", *conditions]), chosen))
    if document.overall:
        console.print(overall_table(document.overall))
    console.print(CAPTION, style="dim")
    for note in online_notes(rows):
        console.print(note, style="yellow", markup=False, highlight=False)
    print_advice(document.recommendation, document.regressions, console)


def online_notes(rows: Sequence[OnlineRow]) -> list[str]:
    """What deserves a sentence."""
    return [note for row in rows for note in _notes(row)]


def _table(title: str, rows: Sequence[OnlineRow]) -> Table:
    table = empty_table(title)
    table.add_column("server", overflow="fold")
    for heading in RIGHT:
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    for row in rows:
        table.add_row(*_cells(row))
    return table


def _cells(row: OnlineRow) -> list[Text]:
    speed = speedup_cells(row) if row.num_blocks else [Text("-"), Text(""), Text(""), Text("")]
    return [
        Text(row.endpoint),
        _number(row.tokens_per_s, "{:.1f}"),
        *_milliseconds(row.time_to_first_token_s, "{:.0f}"),
        *_milliseconds(row.time_per_output_token_s, "{:.1f}"),
        _number(row.acceptance_rate, "{:.0%}"),
        _number(row.acceptance_length, "{:.2f}"),
        *speed,
    ]


def _notes(row: OnlineRow) -> list[str]:
    where = ", ".join([row.workload, row.endpoint, *row.conditions])
    found = []
    if row.num_failed:
        found.append(f"{where}: {row.num_failed} of {row.num_requests} requests failed: {row.first_error}")
    if row.num_refused:
        found.append(f"{where}: it refused {row.num_refused} prompts; no server was given these again")
    if not row.num_blocks:
        found.append(f"{where}: no block could be compared")
    served = row.num_requests - row.num_failed
    if not row.is_baseline and row.num_equal_texts is not None and row.num_equal_texts < served:
        found.append(f"{where}: {row.num_equal_texts} of {served} texts equal those of the first server")
    return found


def _milliseconds(seconds: Percentiles | None, form: str) -> list[Text]:
    values = (None, None) if seconds is None else (seconds.median, seconds.p99)
    return [_number(None if value is None else value * 1e3, form) for value in values]


def _number(value: float | None, form: str) -> Text:
    return Text("-" if value is None else form.format(value))
