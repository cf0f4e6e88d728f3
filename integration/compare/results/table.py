"""The result for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from foredraft.integration.compare.plan import BASELINE
from foredraft.integration.compare.results.rows import ResultRow

CAPTION = (
    "tokens/s: output tokens over wall time, reading the prompts included. "
    "speedup: median over blocks of the paired ratio to none."
)

FEW_BLOCKS = 3
"""Below this many a median cannot outvote one disturbed block."""

_VERDICTS = {
    True: Text("equal", style="green"),
    "near_tie": Text("near-tie", style="yellow"),
    False: Text("DIFFERS", style="bold red"),
    None: Text("-", style="dim"),
}


def print_results(rows: Sequence[ResultRow], label: str, console: Console) -> None:
    """One table per workload, then what deserves a sentence.

    Args:
        label: model, dtype and hardware; without them no figure means anything.
    """
    if not rows:
        return
    console.print(label, markup=False, highlight=False)
    workloads = list(dict.fromkeys(row.workload for row in rows))
    for workload in workloads:
        console.print(_table(workload, [row for row in rows if row.workload == workload]))
    console.print(CAPTION, style="dim")
    for row in rows:
        for note in _notes(row):
            console.print(note, style="yellow", markup=False, highlight=False)


def _table(workload: str, rows: Sequence[ResultRow]) -> Table:
    # Without vertical rules the table fits 80 columns, which is what a pipe gets.
    title = Text(f"workload {workload}")
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("batch", "temp", "K"):
        table.add_column(heading, justify="right")
    table.add_column("proposer")
    for heading in ("tokens/s", "speedup", "accept.\nrate", "accept.\nlength"):
        table.add_column(heading, justify="right")
    table.add_column("output")
    for number, row in enumerate(rows):
        is_last = number + 1 == len(rows) or rows[number + 1].proposer == BASELINE
        table.add_row(*_cells(row), end_section=is_last)
    return table


def _cells(row: ResultRow) -> list[Text]:
    rate = "-" if row.acceptance_rate is None else f"{row.acceptance_rate:.0%}"
    style = "dim" if row.proposer == BASELINE else "bold green" if row.speedup >= 1 else "bold red"
    return [
        Text(str(row.batch_size)),
        Text(f"{row.temperature:g}"),
        Text(str(row.num_draft_tokens)),
        Text(row.proposer),
        Text(f"{row.tokens_per_s:.1f}"),
        Text(f"{row.speedup:.2f}x", style=style),
        Text(rate),
        Text(f"{row.acceptance_length:.2f}"),
        _VERDICTS[row.outputs_equal],
    ]


def _notes(row: ResultRow) -> list[str]:
    where = f"{row.workload}, {row.proposer}, batch {row.batch_size}, temperature {row.temperature:g}"
    notes = []
    first = row.first_difference
    if first is not None:
        measured = "one output ends there"
        if first.logit_gap is not None:
            measured = f"logit gap {first.logit_gap:.3g}, rounding {first.rounding:.3g}"
        notes.append(
            f"{where}: prompt {first.prompt_id} differs at output token {first.position}: {measured}"
        )
    if row.proposer != BASELINE and row.num_blocks < FEW_BLOCKS:
        blocks = "one block" if row.num_blocks == 1 else f"{row.num_blocks} blocks"
        notes.append(f"{where}: the speedup rests on {blocks}; raise --repeats or --limit for more")
    if row.proposer_faults:
        notes.append(f"{where}: the proposer failed {row.proposer_faults} times")
    return notes
