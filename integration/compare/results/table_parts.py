"""What the tables of both modes share."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from foredraft.integration.compare.results.base import (
    ComparisonDocument,
    HeadToHead,
    ManyWorkloadsRow,
    Speedup,
)

VERDICT_STYLES = {
    "faster": "bold green",
    "slower": "bold red",
    "output differs": "bold red",
    "no difference shown": "yellow",
    "too few blocks": "yellow",
}
_VERDICT_WORDS = {"no difference shown": "no diff.", "too few blocks": "too few", "output differs": "WRONG"}


def overall_table(rows: Sequence[ManyWorkloadsRow]) -> Table:
    """The speedups over all workloads."""
    table = empty_table("all workloads, each with the same weight")
    table.add_column("condition")
    table.add_column("name", overflow="fold")
    for heading in ("speedup", "from", "to"):
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    for row in rows:
        table.add_row(Text(", ".join(row.conditions)), Text(row.name), *speedup_cells(row))
    return table


def head_to_head_table(rows: Sequence[HeadToHead]) -> Table:
    """Each two against one another."""
    table = empty_table("one against the other, over all workloads, in the same blocks")
    table.add_column("condition")
    for heading in ("name", "against"):
        table.add_column(heading, overflow="fold")
    for heading in ("ratio", "from", "to"):
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    for row in rows:
        where = [Text(", ".join(row.conditions)), Text(row.config), Text(row.against)]
        table.add_row(*where, *speedup_cells(row))
    return table


def empty_table(title: str) -> Table:
    """A table to be filled."""
    # Without vertical rules the table fits 80 columns, which is what a pipe gets.
    return Table(
        title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False
    )


def speedup_cells(row: Speedup) -> list[Text]:
    """Speedup, the ends of its interval, verdict."""
    if row.verdict is None:
        return [Text(f"{row.speedup:.2f}x", style="dim"), Text(""), Text(""), Text("")]
    style = VERDICT_STYLES[row.verdict]
    ends = [Text("-" if end is None else f"{end:.2f}") for end in (row.speedup_low, row.speedup_high)]
    word = _VERDICT_WORDS.get(row.verdict, row.verdict)
    return [Text(f"{row.speedup:.2f}x", style=style), *ends, Text(word, style=style)]


def few_blocks(num_blocks: int) -> str:
    """That there are too few blocks, in words."""
    return f"{'one block' if num_blocks == 1 else f'{num_blocks} blocks'} give no interval"


def print_advice(document: ComparisonDocument, console: Console) -> None:
    """The paragraph, whether blocks are missing, and what is worse or could not be held against before."""
    console.print()
    if document.interrupted:
        console.print("interrupted, blocks are missing", style="bold yellow")
    console.print(document.recommendation, markup=False, highlight=False)
    for note in document.baseline_notes or ():
        console.print(f"--baseline: {note}", style="yellow", markup=False, highlight=False)
    for one in document.regressions or ():
        console.print(f"REGRESSION: {one.sentence}", style="bold red", markup=False, highlight=False)
