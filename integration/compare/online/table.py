"""The result of an online comparison for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from foredraft.integration.compare.online.model import OnlineDocument, OnlineRow
from foredraft.integration.compare.results.base import Percentiles
from foredraft.integration.compare.results.table_parts import (
    empty_table,
    few_blocks,
    overall_table,
    print_advice,
    speedup_cells,
)
from foredraft.integration.compare.statistics.estimate import MIN_BLOCKS

CAPTION = (
    "speedup: over the first server, from paired blocks: of tokens/s, under arrivals of the mean latency. "
    "All intervals of this run hold together with 95 %. Acceptance is by the servers' own count; by place: "
    "per draft, how often each token of it was kept. Only texts at temperature 0 were compared; a law was "
    "not checked."
)
TIMES = ("first token", "p95", "p99", "per token", "p95", "p99", "request", "p95", "p99")
MAX_PLACES = 5
NO_COUNTS = (
    "its numbers of tokens (usage.completion_tokens) are missing or impossible, so it has no tokens/s; "
    "--rates compares latencies"
)


def print_online(document: OnlineDocument, console: Console) -> None:
    """One table per workload and condition, one over all, then what deserves a sentence."""
    rows = document.results
    if not rows:
        return
    for workload, *conditions in dict.fromkeys((row.workload, *row.conditions) for row in rows):
        chosen = [row for row in rows if (row.workload, *row.conditions) == (workload, *conditions)]
        console.print(_speed_table(", ".join([f"workload {workload}", *conditions]), chosen))
        console.print(_times_table(chosen))
    if document.overall:
        console.print(overall_table(document.overall))
    console.print(CAPTION, style="dim")
    for note in online_notes(rows):
        console.print(note, style="yellow", markup=False, highlight=False)
    print_advice(document, console)


def online_notes(rows: Sequence[OnlineRow]) -> list[str]:
    """What deserves a sentence."""
    return [note for row in rows for note in _notes(row)]


def _speed_table(title: str, rows: Sequence[OnlineRow]) -> Table:
    table = empty_table(title)
    table.add_column("server", overflow="fold")
    for heading in ("tok/s", "speedup", "from", "to"):
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    for heading in ("acc.\nrate", "acc.\nlen.", "by place\n%"):
        table.add_column(heading, justify="right")
    for row in rows:
        speed = speedup_cells(row) if row.num_blocks else [Text("-"), Text(""), Text(""), Text("")]
        table.add_row(
            Text(row.endpoint),
            _number(row.tokens_per_s, "{:.1f}"),
            *speed,
            _number(row.acceptance_rate, "{:.0%}"),
            _number(row.acceptance_length, "{:.2f}"),
            Text(_by_place(row) or "-"),
        )
    return table


def _by_place(row: OnlineRow) -> str:
    shares = [f"{share:.0%}".rstrip("%") for share in row.position_acceptance if share is not None]
    return " ".join(shares[:MAX_PLACES] + (["…"] if len(shares) > MAX_PLACES else []))


def _times_table(rows: Sequence[OnlineRow]) -> Table:
    table = empty_table("milliseconds: median, p95, p99")
    table.add_column("server", overflow="fold")
    for heading in TIMES:
        table.add_column(heading.replace(" ", "\n"), justify="right")
    for row in rows:
        first, token = row.time_to_first_token_s, row.time_per_output_token_s
        cells = [*_milliseconds(first, "{:.0f}"), *_milliseconds(token, "{:.1f}")]
        table.add_row(Text(row.endpoint), *cells, *_milliseconds(row.latency_s, "{:.0f}"))
    return table


def _notes(row: OnlineRow) -> list[str]:
    where = ", ".join([row.workload, row.endpoint, *row.conditions])
    found = []
    if row.num_failed:
        found.append(f"{where}: {row.num_failed} of {row.num_requests} requests failed: {row.first_error}")
    if row.num_refused:
        found.append(f"{where}: it refused {row.num_refused} prompts; no server was given these again")
    if not row.num_blocks:
        found.append(f"{where}: no block could be compared")
    elif not row.is_baseline and row.num_blocks < MIN_BLOCKS:
        found.append(f"{where}: {few_blocks(row.num_blocks)}; raise --budget for more")
    if row.latency_s is not None and row.tokens_per_s is None:
        found.append(f"{where}: {NO_COUNTS}")
    equal, compared = row.num_equal_texts, row.num_compared_texts
    if not row.is_baseline and equal is not None and compared is not None and equal < compared:
        found.append(f"{where}: {equal} of {compared} texts equal those of the first server")
    return found


def _milliseconds(seconds: Percentiles | None, form: str) -> list[Text]:
    values = (None,) * 3 if seconds is None else (seconds.median, seconds.p95, seconds.p99)
    return [_number(None if value is None else value * 1e3, form) for value in values]


def _number(value: float | None, form: str) -> Text:
    return Text("-" if value is None else form.format(value))
