"""The tables of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from foredraft.integration.compare.offline.law_check import ALARM
from foredraft.integration.compare.report.markup import Markup, element
from foredraft.integration.compare.results.base import CellRow, Design, HeadToHead, Percentiles, Speedup
from foredraft.integration.compare.results.model import ResultRow

HEADINGS = (
    *("workload", "batch", "temp", "config", "K", "tokens/s", "speedup", "from", "to", "verdict", "output"),
    *("accept. rate", "accept. length", "drafted", "wasted", "first token ms", "p95", "p99"),
    *("per token ms", "p95", "p99", "ideal", "of ideal", "memory MB", "blocks"),
)
PAIR_HEADINGS = ("condition", "name", "against", "ratio", "from", "to", "verdict")
TEXT_HEADINGS = ("workload", "condition", "config", "name", "against", "server", "verdict", "output")
VERDICT_CLASSES = {
    "faster": "good",
    "slower": "bad",
    "output differs": "bad",
    "no difference shown": "open",
    "too few blocks": "open",
}
OUTPUT_WORDS = {True: "equal", "near_tie": "near-tie", False: "differs", None: "law not checked"}


def results_table(rows: Sequence[ResultRow]) -> Markup:
    """Every row, in a frame that scrolls sideways."""
    return figures_table(HEADINGS, [_cells(row) for row in rows])


def head_to_head_table(pairs: Sequence[HeadToHead]) -> Markup:
    """Each two against one another."""
    rows = [
        [
            element("td", ", ".join(pair.conditions), class_="text"),
            element("td", pair.config, class_="text"),
            element("td", pair.against, class_="text"),
            *ratio_cells(pair),
        ]
        for pair in pairs
    ]
    return figures_table(PAIR_HEADINGS, rows)


def figures_table(headings: Sequence[str], rows: Sequence[Sequence[Markup]]) -> Markup:
    """Cells under their headings, in a frame that scrolls sideways."""
    head = [element("th", name, class_="text" if name in TEXT_HEADINGS else None) for name in headings]
    body = [element("tr", *cells) for cells in rows]
    table = element("table", element("thead", element("tr", *head)), element("tbody", *body))
    return element("div", table, class_="scroll", tabindex="0")


def facts_list(facts: Mapping[str, str]) -> Markup:
    """Names and what is known of them."""
    return element("dl", *[part for name, text in facts.items() for part in _entry(name, text)])


def design_text(design: Design) -> str:
    """When a cell ends, in words."""
    if design.looks is None:
        return f"fixed: each prompt at least {design.repeats} times, one look at the end"
    looks = ", ".join(map(str, design.looks))
    return f"until each verdict is clear or {design.budget_s:g} s have passed; looks after {looks} blocks"


def _entry(name: str, text: str) -> tuple[Markup, Markup]:
    return element("dt", name), element("dd", text)


def _cells(row: ResultRow) -> list[Markup]:
    output_class = "text bad" if row.outputs_equal is False or _is_law_wrong(row) else "text"
    return [
        element("td", row.workload, class_="text"),
        element("td", row.load.removeprefix("batch ")),
        element("td", f"{row.temperature:g}"),
        element("td", row.config, class_="text"),
        element("td", row.k),
        *speed_cells(row),
        element("td", _output_word(row), class_=output_class),
        number_cell(row.acceptance_rate, "{:.0%}"),
        number_cell(row.acceptance_length, "{:.2f}"),
        element("td", str(row.drafted_tokens)),
        element("td", str(row.wasted_tokens)),
        *percentile_cells(row.time_to_first_token_s),
        *percentile_cells(row.time_per_output_token_s),
        number_cell(row.ideal_speedup, "{:.2f}x"),
        number_cell(row.share_of_ideal, "{:.0%}"),
        number_cell(None if row.memory_bytes is None else row.memory_bytes / 1e6, "{:.1f}"),
        element("td", str(row.num_blocks)),
    ]


def speed_cells(row: CellRow) -> list[Markup]:
    """Tokens/s, speedup, the ends of its interval, verdict."""
    return [number_cell(row.tokens_per_s, "{:.1f}"), *ratio_cells(row, is_known=row.num_blocks > 0)]


def ratio_cells(row: Speedup, *, is_known: bool = True) -> list[Markup]:
    """Speedup, the ends of its interval, verdict."""
    verdict_class = VERDICT_CLASSES.get(row.verdict or "", "")
    return [
        number_cell(row.speedup if is_known else None, "{:.2f}x"),
        number_cell(row.speedup_low, "{:.2f}"),
        number_cell(row.speedup_high, "{:.2f}"),
        element("td", row.verdict or "baseline", class_=f"text {verdict_class}".strip()),
    ]


def percentile_cells(seconds: Percentiles | None) -> list[Markup]:
    """Median, p95 and p99 in milliseconds."""
    values = (None,) * 3 if seconds is None else (seconds.median, seconds.p95, seconds.p99)
    return [number_cell(None if value is None else value * 1e3, "{:.1f}") for value in values]


def number_cell(value: float | None, form: str) -> Markup:
    """A figure, or that there is none."""
    return element("td", "-" if value is None else form.format(value))


def _output_word(row: ResultRow) -> str:
    if _is_law_wrong(row):
        return "law wrong"
    if row.outputs_equal is None and row.law_p_value is not None:
        return "law holds"
    if row.outputs_equal is None and row.law_tokens is not None:
        return "too few tokens for the law"
    return OUTPUT_WORDS[row.outputs_equal]


def _is_law_wrong(row: ResultRow) -> bool:
    return row.law_p_value is not None and row.law_p_value < ALARM
