"""The result of a sweep for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from foredraft.integration.train.sweep import SweepRow, best_row

CAPTION = (
    "acceptance: of the first drafted token, greedy, held-out responses, teacher-forced. drafting step: its "
    "cost against a plain step, batch 1. speedup: predicted at the K that is best."
)


def print_sweep(rows: Sequence[SweepRow], console: Console) -> None:
    """A line per exit layer, then which one pays best and what to do with it."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("exit\nlayer", "trained\ntokens", "acceptance", "drafting\nstep", "K", "speedup"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*_cells(row))
    console.print(table)
    console.print(CAPTION, style="dim")
    console.print(conclusion(rows), style="bold", markup=False, highlight=False)


def conclusion(rows: Sequence[SweepRow]) -> str:
    """What to do next."""
    best = best_row(rows)
    if best is None:
        return (
            "No layer pays yet after so little training. Train one with the same command and --exit-layer in "
            "place of --sweep, or sweep again with more --sweep-tokens."
        )
    pays = "pays best" if len(rows) > 1 else "pays (no other layer was tried)"
    return (
        f"Leaving after layer {best.exit_layer} {pays}. Train it with the same command, --exit-layer "
        f"{best.exit_layer} in place of --sweep: the data are there."
    )


def _cells(row: SweepRow) -> list[str]:
    return [
        str(row.exit_layer),
        str(row.train_tokens),
        f"{row.held_out_greedy:.3f}",
        "not measured" if row.draft_step_ratio is None else f"{row.draft_step_ratio:.3f}",
        "-" if row.num_draft_tokens is None else str(row.num_draft_tokens),
        "-" if row.speedup is None else f"{row.speedup:.2f}x",
    ]
