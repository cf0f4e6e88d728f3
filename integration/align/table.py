"""The result for people."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from foredraft.integration.align.costs import Costs
from foredraft.integration.align.counts import AcceptanceCounts
from foredraft.integration.align.predict import expected_tokens
from foredraft.integration.align.result import AlignResult

CAPTION = (
    "Token n: accepted of those judged, given that all before it were accepted; below, how many, and for the "
    "first one the 95 % interval. length: tokens per target pass, the target's own one included."
)
NO_DATA = Text("no data", style="dim")


def print_result(result: AlignResult, console: Console) -> None:
    """Acceptance per category, costs, predicted speedups, and the conclusion."""
    if result.acceptance.categories:
        console.print(_acceptance_table(result))
        console.print(CAPTION, style="dim")
    served = result.acceptance.overall.num_prompts
    if not result.acceptance.complete:
        _say(
            console,
            f"Stopped early: {served} of {result.num_prompts} prompts begun, not all finished.",
            "yellow",
        )
    if result.costs is not None:
        _say(console, _costs_line(result.costs))
    if result.speedups is not None and result.costs is not None:
        console.print(_prediction_table(result, result.speedups, result.costs))
    _say(console, result.conclusion, "bold")
    if result.speedups is not None and result.is_thin:
        _say(console, "It rests on little: give it more --seconds or prompts.", "yellow")


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(text, style=style, markup=False, highlight=False)


def _table(title: str) -> Table:
    return Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))


def _acceptance_table(result: AlignResult) -> Table:
    table = _table(f"temperature {result.temperature:g}")
    table.add_column("category", no_wrap=True)
    headings = ["prompts", "drafted", "accept.\nrate", "accept.\nlength"]
    headings += [f"token\n{position + 1}" for position in range(result.num_draft_tokens)]
    for heading in headings:
        table.add_column(heading, justify="right")
    categories = result.acceptance.categories
    for number, (name, counts) in enumerate(categories.items(), start=1):
        table.add_row(*_cells(name, counts, result.num_draft_tokens), end_section=number == len(categories))
    table.add_row(*_cells("all", result.acceptance.overall, result.num_draft_tokens), style="bold")
    return table


def _cells(name: str, counts: AcceptanceCounts, num_draft_tokens: int) -> list[Text]:
    rate, length = counts.acceptance_rate, counts.acceptance_length
    return [
        Text(name),
        Text(str(counts.num_prompts)),
        Text(str(counts.num_drafted_tokens)),
        NO_DATA if rate is None else Text(f"{rate:.0%}"),
        NO_DATA if length is None else Text(f"{length:.2f}"),
        *(_position_cell(counts, position) for position in range(num_draft_tokens)),
    ]


def _position_cell(counts: AcceptanceCounts, position: int) -> Text:
    acceptance = counts.position_acceptance
    known = acceptance[position] if position < len(acceptance) else None
    if known is None:
        return NO_DATA
    lines = [f"{known:.0%}", f"of {counts.judged_per_position[position]}"]
    if position == 0 and counts.first_interval is not None:
        low, high = counts.first_interval
        lines.append(f"{100 * low:.0f}-{100 * high:.0f}%")
    return Text("\n".join(lines))


def _costs_line(costs: Costs) -> str:
    plain, verifying, drafting = costs.pass_s[0], costs.pass_s[-1], costs.draft_step_s
    return (
        f"Batch size {costs.batch_size}, context {costs.context}: a target pass over 1 token takes "
        f"{plain * 1e3:.2f} ms, over {costs.num_draft_tokens + 1} tokens {verifying * 1e3:.2f} ms "
        f"({verifying / plain:.2f}x), a drafting step {drafting * 1e3:.2f} ms ({drafting / plain:.2f}x)."
    )


def _prediction_table(result: AlignResult, speedups: dict[int, float], costs: Costs) -> Table:
    table = _table("predicted")
    for heading in ("K", "tokens\nper step", "cost of\na step", "speedup"):
        table.add_column(heading, justify="right")
    acceptance = result.acceptance.overall.position_acceptance
    for num_drafted, speedup in speedups.items():
        table.add_row(
            str(num_drafted),
            f"{expected_tokens(acceptance, num_drafted):.2f}",
            f"{costs.step_ratios[num_drafted]:.2f}x",
            f"{speedup:.2f}x",
        )
    return table
