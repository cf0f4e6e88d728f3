"""The result of an online comparison for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from foredraft.integration.compare.online.load import Load
from foredraft.integration.compare.online.model import OnlineRow
from foredraft.integration.compare.results.table import VERDICT_STYLES

CAPTION = (
    "speedup: over the first server, from paired blocks: of tokens/s, under random arrivals of the mean "
    "latency. All intervals of this run hold together with 95 %. Only texts at temperature 0 were compared; "
    "a law was not checked."
)
HEADINGS = (
    "load",
    "temp",
    "server",
    "tok/s",
    "first\nms",
    "token\nms",
    "acc.",
    "speedup",
    "from",
    "to",
    "verdict",
)


def print_online(rows: Sequence[OnlineRow], console: Console) -> None:
    """One table per workload, then what deserves a sentence."""
    for workload in dict.fromkeys(row.workload for row in rows):
        title = Text(f"workload {workload}")
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for heading in HEADINGS:
            table.add_column(heading, justify="left" if heading in ("server", "verdict") else "right")
        for row in rows:
            if row.workload == workload:
                table.add_row(*_cells(row))
        console.print(table)
    if rows:
        console.print(CAPTION, style="dim")
    for row in rows:
        for note in _notes(row):
            console.print(note, style="yellow", markup=False, highlight=False)


def _cells(row: OnlineRow) -> list[Text]:
    first, token = row.time_to_first_token_s, row.time_per_output_token_s
    verdict = row.verdict or ""
    return [
        Text(_load(row)),
        Text(f"{row.temperature:g}"),
        Text(row.endpoint),
        Text(_number(row.tokens_per_s, "{:.1f}")),
        Text(_number(first.median * 1e3 if first else None, "{:.0f}")),
        Text(_number(token.median * 1e3 if token else None, "{:.1f}")),
        Text(_number(row.acceptance_rate, "{:.0%}")),
        Text(f"{row.speedup:.2f}x"),
        Text(_number(row.speedup_low, "{:.2f}") if row.verdict else ""),
        Text(_number(row.speedup_high, "{:.2f}") if row.verdict else ""),
        Text(verdict, style=VERDICT_STYLES.get(verdict, "")),
    ]


def _notes(row: OnlineRow) -> list[str]:
    where = f"{row.workload}, {row.endpoint}, {_load(row)}, temperature {row.temperature:g}"
    found = []
    if row.num_failed:
        found.append(f"{where}: {row.num_failed} of {row.num_requests} requests failed: {row.first_error}")
    served = row.num_requests - row.num_failed
    if row.verdict and row.num_equal_texts is not None and row.num_equal_texts < served:
        found.append(f"{where}: {row.num_equal_texts} of {served} texts equal those of the first server")
    return found


def _load(row: OnlineRow) -> str:
    return Load(row.concurrency, row.arrivals_per_s).label


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
